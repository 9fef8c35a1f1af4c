"""Every setter and getter of the C header is a Python function; errors, values and names are those of the library."""
import ctypes
import enum
import functools
import glob
import inspect
import os
import re

import pytest
from conftest import solver_of
from petsc4py import PETSc

import finepc

HEADER = os.path.join(os.path.dirname(__file__), "..", "..", "include", "finepc.h")
TYPE_OF = {"PCAFSAI": "afsai", "PCSFSAI": "sfsai", "PCBISAI": "bisai", "PCRRB": "rrb", "PCCMATCH": "cmatch", "PCAUTO": "auto",
           "KSPCGFused": "cgfused", "KSPRRBCG": "rrbcg", "KSPGMRESFused": "gmresfused",
           "PCFinePC": "cmatch", "KSPFinePC": "cgfused"}
SETTERS = [name for name in finepc.__all__ if re.match(r"(PC|KSP)\w+?Set[A-Z]", name)]
OTHER_VALUES = {"MatOrderingType": "rcm", "MatFactorShiftType": PETSc.Mat.FactorShiftType.INBLOCKS}


def header():
    with open(HEADER) as f:
        return f.read()


@functools.lru_cache
def pages():
    """Everything that may hold a manual page"""
    texts = []
    for path in glob.glob(os.path.join(os.path.dirname(HEADER), "..", "src", "**", "*.cxx"), recursive=True):
        with open(path, encoding="utf-8") as f:
            texts.append(f.read())
    return "".join(texts)


def create(name):
    """An object of the type that a function belongs to"""
    prefix = re.match(r"(\w+?)[SG]et[A-Z]", name).group(1)
    solver = PETSc.KSP() if prefix.startswith("KSP") else PETSc.PC()
    solver.create(PETSc.COMM_SELF)
    solver.setType(TYPE_OF[prefix])
    return solver


def another(value, name):
    if isinstance(value, enum.IntEnum):
        return list(type(value))[(value + 1) % len(type(value))]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        if name.endswith("ShiftType"):
            return OTHER_VALUES["MatFactorShiftType"]
        return value - 1 if name == "KSPGMRESFusedSetStepSize" else value + 1 # whose default is the largest
    if isinstance(value, float):
        return value / 2 + 0.125 if not name.endswith("Relaxation") else 1.25
    return OTHER_VALUES["MatOrderingType"]


def test_every_function_of_the_header_is_there():
    declared = re.findall(r"^PETSC_EXTERN PetscErrorCode ((?:PC|KSP)\w*[SG]et\w+)\(", header(), re.M)
    assert len(declared) > 50
    for name in declared:
        assert name in finepc.__all__ and inspect.isfunction(getattr(finepc, name)), name


def test_every_setter_has_a_case():
    assert len(SETTERS) > 40 and {re.match(r"(\w+?)Set[A-Z]", name).group(1) for name in SETTERS} == set(TYPE_OF)


@pytest.mark.parametrize("name", [name for name in SETTERS if not name.endswith("SetPattern")])
def test_set_and_get(name):
    target, setter, getter = create(name), getattr(finepc, name), getattr(finepc, name.replace("Set", "Get", 1))
    default = getter(target)
    value = another(default, name)
    assert value != default
    setter(target, value)
    assert getter(target) == value and type(getter(target)) is type(default)
    setter(target, default)
    assert getter(target) == default


@pytest.mark.parametrize("name", [name for name in finepc.__all__ if inspect.isfunction(getattr(finepc, name))])
def test_docstrings(name):
    text = inspect.getdoc(getattr(finepc, name))
    assert len(text.split("\n\n")) > 1 or name in ("library_path", "manual")
    title = re.search(rf"^  {name} - (.*?)\n\n", pages(), re.M | re.S)
    if title: # word by word, wherever lines end
        assert text.split("\n\n")[0].split() == title.group(1).split()
    assert "NULL" not in text and "PETSC_TRUE" not in text and "MatDestroy" not in text
    if re.match(r"(PC|KSP)\w+?Set[A-Z]", name) and not name.endswith("SetPattern"):
        key = re.search(r"^-(?:pc|ksp)_\w+ <(.+)>$", text, re.M)
        assert key, "no key with its default"
        default = getattr(finepc, name.replace("Set", "Get", 1))(create(name))
        default = default.name.lower() if isinstance(default, enum.IntEnum) else default
        word = {"true": True, "false": False, "none": 0, "natural": "natural"}.get(key.group(1), key.group(1))
        assert word == default or float(word) == pytest.approx(default)


def test_constants_are_those_of_the_header():
    for constant, value in re.findall(r'^# *define ((?:PC|KSP|MAT)\w+)\s+"(\w+)"', header(), re.M):
        assert getattr(finepc, constant) == value
    major, minor, subminor = re.findall(r"^#define FINEPC_VERSION_\w+\s+(\d+)", header(), re.M)
    assert finepc.__version__ == f"{major}.{minor}.{subminor}"


def test_enumerations_are_those_of_the_library():
    library = ctypes.CDLL(finepc.library_path())
    found = re.findall(r"typedef enum \{([^}]*)\} (\w+);\nPETSC_EXTERN const char \*const (\w+)\[\];", header())
    assert len(found) > 5
    for values, name, array in found:
        members = list(getattr(finepc, name))
        words = (ctypes.c_char_p * (len(members) + 1)).in_dll(library, array)
        assert [word.decode() for word in words] == [*(member.name.lower() for member in members), name]
        for number, value in enumerate(values.split(",")):
            assert getattr(finepc, value.strip()) is members[number] and members[number] == number


def test_words_of_options_are_values():
    pc = create("PCAFSAISetSelection")
    finepc.PCAFSAISetSelection(pc, "gradient")
    assert finepc.PCAFSAIGetSelection(pc) is finepc.PC_AFSAI_SELECTION_GRADIENT
    with pytest.raises(ValueError, match="gradient, decrease"):
        finepc.PCAFSAISetSelection(pc, "largest")
    with pytest.raises(TypeError, match="PCAFSAISelection"):
        finepc.PCAFSAISetSelection(pc, finepc.PC_CMATCH_MIS2)


def test_errors_of_petsc():
    pc = create("PCAFSAISetMaxSteps")
    with pytest.raises(PETSc.Error, match="-pc_afsai_max_steps is -1, but must be between 0 and") as caught:
        finepc.PCAFSAISetMaxSteps(pc, -1)
    assert caught.value.ierr == 63
    with pytest.raises(PETSc.Error, match="Operation done in wrong order"):
        finepc.PCAFSAIGetFactors(pc)
    pc.setType("jacobi")
    finepc.PCAFSAISetMaxSteps(pc, 5) # as PETSc's own setters, without effect on another type
    with pytest.raises(PETSc.Error, match="Cannot locate function PCAFSAIGetMaxSteps_C"):
        finepc.PCAFSAIGetMaxSteps(pc)
    assert pc.getType() == "jacobi"


def test_wrong_arguments():
    pc = create("PCAFSAISetMaxSteps")
    with pytest.raises(TypeError, match="PETSc.PC is needed, not KSP"):
        finepc.PCAFSAISetMaxSteps(PETSc.KSP().create(PETSc.COMM_SELF), 3)
    with pytest.raises(TypeError):
        finepc.PCAFSAISetMaxSteps(pc, 2.5)
    with pytest.raises(OverflowError, match="does not fit"):
        finepc.PCAFSAISetMaxSteps(pc, 2**70)
    with pytest.raises(ValueError, match="not created"):
        finepc.PCAFSAISetMaxSteps(PETSc.PC(), 3)
    pc.destroy()
    with pytest.raises(ValueError, match="destroyed"):
        finepc.PCAFSAIGetMaxSteps(pc)


def test_manual():
    for name in TYPE_OF.values():
        assert f'"{name}"' in finepc.manual(name) and "Options Database Key" in finepc.manual(name)
    assert finepc.manual("PCAFSAI") == finepc.manual("afsai")
    assert "max_steps : int" in finepc.manual("PCAFSAISetMaxSteps")
    with pytest.raises(KeyError, match="afsai, sfsai"):
        finepc.manual("ilu")


def test_a_setter_changes_the_solver(laplacian):
    """What a setter sets is used: no steps make afsai point Jacobi."""
    x, b = laplacian.createVecs()
    b.set(1)
    iterations = []
    for steps in (0, 4, 20):
        ksp = solver_of(laplacian, "afsai")
        finepc.PCAFSAISetMaxSteps(ksp.getPC(), steps)
        ksp.solve(b, x)
        iterations.append(ksp.getIterationNumber())
    jacobi = solver_of(laplacian, "jacobi")
    jacobi.solve(b, x)
    assert jacobi.getIterationNumber() == iterations[0] > iterations[1] > iterations[2]
