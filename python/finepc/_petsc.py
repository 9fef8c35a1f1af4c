"""Calls of libfinepc through ctypes with the objects of petsc4py."""
from __future__ import annotations

import ctypes
import enum
import operator
import os
import typing

import numpy

if typing.TYPE_CHECKING:
    from petsc4py import PETSc

_library: ctypes.CDLL | None = None


def library_path() -> str:
    """The path of libfinepc.so, for ``-dll_append`` of any PETSc program."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libfinepc.so")
    if not os.path.exists(path):
        raise ImportError(f"{path} is missing: install finepc again with `pip install .` in its source folder")
    return path


def library() -> ctypes.CDLL:
    """The library, whose types are registered with the PETSc of petsc4py from the first call on."""
    global _library
    from petsc4py import PETSc # initializes PETSc unless this was done before

    if _library is None:
        if not PETSc.Sys.isInitialized():
            raise RuntimeError("PETSc is finalized, or not initialized: call petsc4py.init() first")
        path = library_path()
        try:
            found = ctypes.CDLL(path)
        except OSError as error:
            raise ImportError(f"{path} cannot be loaded ({error}): {_AGAIN}") from error
        # Where petsc4py has another PETSc than libfinepc, the loader has brought a second one, which nobody has initialized.
        initialized = ctypes.c_bool(False)
        if found.PetscInitialized(ctypes.byref(initialized)) or not initialized.value:
            version = ".".join(str(number) for number in PETSc.Sys.getVersion())
            raise ImportError(f"{path} was built with PETSc {_version(found)}, but petsc4py has PETSc {version}: {_AGAIN}")
        check(found.FinePCInitializePackage())
        _library = found
    return _library


def _version(petsc: ctypes.CDLL) -> str:
    numbers = [ctypes.c_int64(0) for _ in range(4)] # where PETSc's integers have 32 bits, the upper halves stay 0
    petsc.PetscGetVersionNumber(*(ctypes.byref(number) for number in numbers))
    return ".".join(str(number.value) for number in numbers[:3])


_AGAIN = "build it again with `pip install --force-reinstall --no-cache-dir --no-deps .` and the PETSC_DIR of petsc4py"


def load() -> None:
    """Registers the types of finepc with PETSc, whether PETSc is initialized already or not.

    Call it before ``setType("afsai")`` or ``setFromOptions()`` names a type of finepc. Options of PETSc that are to be in place
    from the start are given to ``petsc4py.init()`` before. Setters and getters call it by themselves, and more calls do no harm.
    """
    check(library().FinePCInitializePackage())


def check(code: int) -> None:
    """An error of PETSc becomes petsc4py's exception, with PETSc's messages."""
    if code:
        _of_petsc4py("PyPetscError_Set", ctypes.c_int, ctypes.c_int)(code) # raises PETSc.Error


def _of_petsc4py(function: str, result: typing.Any, *arguments: typing.Any) -> typing.Any:
    """A function that petsc4py offers to programs in C, which find it in the same way."""
    from petsc4py import PETSc

    name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = PETSc.__pyx_capi__[function] # type: ignore[attr-defined]
    return ctypes.PYFUNCTYPE(result, *arguments)(pointer(capsule, name(capsule)))


def call(function: str, *arguments: typing.Any) -> None:
    check(getattr(library(), function)(*arguments))


# ---- arguments ----


def _handle(value: typing.Any, kind: str) -> ctypes.c_void_p:
    from petsc4py import PETSc

    if not isinstance(value, getattr(PETSc, kind)):
        raise TypeError(f"a petsc4py.PETSc.{kind} is needed, not {type(value).__name__}")
    if not value.handle:
        raise ValueError(f"the {kind} is not created, or destroyed")
    return ctypes.c_void_p(value.handle)


def pc(value: PETSc.PC) -> ctypes.c_void_p:
    return _handle(value, "PC")


def ksp(value: PETSc.KSP) -> ctypes.c_void_p:
    return _handle(value, "KSP")


def mat(value: PETSc.Mat | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None) if value is None else _handle(value, "Mat")


def _petsc_int() -> type[ctypes.c_int32] | type[ctypes.c_int64]:
    from petsc4py import PETSc

    return ctypes.c_int64 if numpy.dtype(PETSc.IntType).itemsize == 8 else ctypes.c_int32


def integer(value: int) -> ctypes.c_int32 | ctypes.c_int64:
    number = operator.index(value) # an error for 2.5
    converted = _petsc_int()(number)
    if converted.value != number: # ctypes leaves bits out
        raise OverflowError(f"{number} does not fit into PETSc's integers")
    return converted


def real(value: float) -> ctypes.c_double:
    return ctypes.c_double(value)


def boolean(value: bool) -> ctypes.c_bool:
    return ctypes.c_bool(value)


def text(value: str) -> ctypes.c_char_p:
    return ctypes.c_char_p(value.encode())


def enumeration(value: int | str, kind: type[enum.IntEnum] | None = None) -> ctypes.c_int:
    """A value of the enumeration, or the word that stands for it in an option."""
    if isinstance(value, str):
        words = {} if kind is None else {member.name.lower(): member.value for member in kind}
        if value.lower() not in words:
            raise ValueError(f"{value!r} is not one of {', '.join(words)}")
        value = words[value.lower()]
    elif isinstance(value, enum.Enum) and kind is not None and not isinstance(value, kind):
        raise TypeError(f"a {kind.__name__} is needed, not {value!r}")
    number = operator.index(value)
    if not -(2**31) <= number < 2**31:
        raise OverflowError(f"{number} is no value of an enumeration")
    return ctypes.c_int(number)


# ---- results ----


def get_integer(function: str, target: ctypes.c_void_p) -> int:
    value = _petsc_int()()
    call(function, target, ctypes.byref(value))
    return value.value


def get_real(function: str, target: ctypes.c_void_p) -> float:
    value = ctypes.c_double()
    call(function, target, ctypes.byref(value))
    return value.value


def get_boolean(function: str, target: ctypes.c_void_p) -> bool:
    value = ctypes.c_bool()
    call(function, target, ctypes.byref(value))
    return value.value


def get_enumeration(function: str, target: ctypes.c_void_p) -> int:
    value = ctypes.c_int()
    call(function, target, ctypes.byref(value))
    return value.value


def get_text(function: str, target: ctypes.c_void_p) -> str:
    value = ctypes.c_char_p()
    call(function, target, ctypes.byref(value))
    return (value.value or b"").decode()


def _reference(handle: int | None) -> PETSc.Mat:
    """A petsc4py Mat with a reference of its own to the matrix."""
    new = _of_petsc4py("PyPetscMat_New", ctypes.py_object, ctypes.c_void_p)
    return typing.cast("PETSc.Mat", new(handle))


def _take(handle: ctypes.c_void_p) -> PETSc.Mat:
    """A petsc4py Mat with the one reference to a matrix that the caller would have to destroy."""
    matrix = _reference(handle.value)
    call("MatDestroy", ctypes.byref(handle))
    return matrix


def get_borrowed(function: str, target: ctypes.c_void_p) -> PETSc.Mat | None:
    handle = ctypes.c_void_p()
    call(function, target, ctypes.byref(handle))
    return _reference(handle.value) if handle.value else None


def get_borrowed_pc(function: str, target: ctypes.c_void_p) -> PETSc.PC:
    handle = ctypes.c_void_p()
    call(function, target, ctypes.byref(handle))
    return typing.cast("PETSc.PC", _of_petsc4py("PyPetscPC_New", ctypes.py_object, ctypes.c_void_p)(handle.value))


def get_matrices(function: str, target: ctypes.c_void_p) -> tuple[PETSc.Mat, PETSc.Mat]:
    first, second = ctypes.c_void_p(), ctypes.c_void_p()
    call(function, target, ctypes.byref(first), ctypes.byref(second))
    return _take(first), _take(second)


def get_hierarchy(function: str, target: ctypes.c_void_p) -> tuple[list[PETSc.Mat], list[PETSc.Mat]]:
    levels = _petsc_int()()
    operators, prolongators = ctypes.POINTER(ctypes.c_void_p)(), ctypes.POINTER(ctypes.c_void_p)()
    call(function, target, ctypes.byref(levels), ctypes.byref(operators), ctypes.byref(prolongators))

    def take(array: typing.Any, count: int) -> list[PETSc.Mat]:
        matrices = [_take(ctypes.c_void_p(array[level])) for level in range(count)]
        # PetscFree() is a macro of this function
        check(ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p).in_dll(
            library(), "PetscTrFree")(ctypes.cast(array, ctypes.c_void_p), 0, b"get_hierarchy", b"_petsc.py"))
        return matrices

    return take(operators, levels.value), take(prolongators, levels.value - 1)


def get_columns(function: str, target: ctypes.c_void_p) -> tuple[list[int], list[int]]:
    count = _petsc_int()()
    numbers, reasons = ctypes.POINTER(_petsc_int())(), ctypes.POINTER(ctypes.c_int)()
    call(function, target, ctypes.byref(count), ctypes.byref(numbers), ctypes.byref(reasons))
    return [int(numbers[column]) for column in range(count.value)], [int(reasons[column]) for column in range(count.value)]
