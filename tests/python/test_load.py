"""The ways in which finepc gets into a Python program; each case is a process of its own."""
import os
import subprocess
import sys

PROBLEM = """
from petsc4py import PETSc
A = PETSc.Mat().createAIJ((40, 40), nnz=3, comm=PETSc.COMM_SELF)
for row in range(40):
    A[row, row] = 2.5
    for column in (row - 1, row + 1):
        if 0 <= column < 40:
            A[row, column] = -1
A.assemble()
pc = PETSc.PC().create(PETSc.COMM_SELF)
pc.setOperators(A)
"""


def run(program, *arguments, **variables):
    environment = dict(os.environ, **variables)
    return subprocess.run([sys.executable, "-c", program, *arguments], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", timeout=100)


def expect(result, text):
    assert result.returncode == 0 and text in result.stdout, result.stdout


def test_not_there_before_load():
    result = run(PROBLEM + "import finepc\npc.setType('afsai')")
    assert result.returncode != 0 and "Unable to find requested PC type afsai" in result.stdout, result.stdout


def test_after_petsc_is_initialized():
    program = "import finepc\nfinepc.load()\nfinepc.load()\npc.setType('afsai')\npc.setUp()\nprint(pc.getType())"
    expect(run(PROBLEM + program), "afsai")


def test_before_petsc_is_initialized():
    program = "import sys, petsc4py\npetsc4py.init(['x', '-pc_type', 'rrb'])\nimport finepc\nfinepc.load()\n"
    expect(run(program + PROBLEM + "pc.setFromOptions()\nprint(pc.getType())"), "rrb")


def test_setter_loads():
    program = "pc.setType('jacobi')\nimport finepc\nfinepc.PCAFSAISetMaxSteps(pc, 3)\npc.setType('afsai')\nprint(pc.getType())"
    expect(run(PROBLEM + program), "afsai")


def test_import_does_not_initialize_petsc():
    expect(run("import sys, finepc\nprint('there:', 'petsc4py.PETSc' in sys.modules)"), "there: False")


def test_library_path_for_dll_append():
    program = "import petsc4py, finepc\npetsc4py.init(['x', '-dll_append', finepc.library_path()])\n"
    expect(run(program + PROBLEM + "pc.setType('sfsai')\nprint(pc.getType())"), "sfsai")


def test_loaded_and_appended():
    """A library that PETSC_OPTIONS has loaded is loaded once more, and objects of before go on."""
    import finepc

    program = PROBLEM + """
pc.setType("afsai")
import finepc
finepc.PCAFSAISetMaxSteps(pc, 3)
pc.setUp()
print("steps", finepc.PCAFSAIGetMaxSteps(pc))
"""
    options = f"{os.environ.get('PETSC_OPTIONS', '')} -dll_append {finepc.library_path()}"
    expect(run(program, PETSC_OPTIONS=options), "steps 3")


def test_another_petsc():
    """libfinepc.so for a PETSc that petsc4py does not use: an ImportError that names both, and the remedy."""
    program = """
from petsc4py import PETSc
import finepc._petsc

class Library:
    def __init__(self, path):
        pass
    def PetscInitialized(self, flag): # leaves the flag False
        return 0
    def PetscGetVersionNumber(self, *numbers):
        for number, value in zip(numbers, (3, 99, 7, 1)):
            number._obj.value = value
        return 0

finepc._petsc.ctypes.CDLL = Library
"""
    result = run(program + "finepc.load()")
    for text in ("ImportError", "built with PETSc 3.99.7, but petsc4py has PETSc 3.", "--force-reinstall"):
        assert result.returncode != 0 and text in result.stdout, result.stdout


def test_finalized_petsc():
    result = run("from petsc4py import PETSc\nimport finepc\nPETSc._finalize()\nfinepc.load()")
    assert result.returncode != 0 and "PETSc is finalized" in result.stdout, result.stdout
