"""finepc-try from Python, and the program itself where pip has installed it."""
from __future__ import annotations

import importlib
import sys
import typing

if typing.TYPE_CHECKING:
    import numpy.typing
    from petsc4py import PETSc


def try_matrix(A: typing.Any, b: PETSc.Vec | numpy.typing.ArrayLike | None = None, **options: typing.Any) -> typing.Any:
    """Solves a system with everything of finepc and PETSc that fits the matrix, and compares the times.

    Parameters
    ----------
    A : petsc4py.PETSc.Mat, scipy sparse matrix, or str
        the matrix, on one rank; or the path of a Matrix Market file or of PETSc's binary format
    b : petsc4py.PETSc.Vec, numpy.ndarray, or None
        the right-hand side; a random one with a fixed seed where there is none
    **options
        those of the program ``finepc-try``, such as ``rtol=1e-8``

    Returns
    -------
    what finepc-try has measured
    """
    return _engine().try_matrix(_matrix(A), rhs=_vector(b), **options)


def main() -> typing.Any:
    try:
        return _engine(".command").main()
    except ImportError as error:
        sys.exit(f"finepc-try: {error}")


def _engine(module: str = "") -> typing.Any:
    try:
        return importlib.import_module(f"finepc_try{module}")
    except ImportError as error:
        raise ImportError(f"finepc_try, the module behind finepc-try, cannot be imported: {error}. `pip install \".[try]\"` in the "
                          "source folder of finepc installs what it needs") from error


def _matrix(A: typing.Any) -> typing.Any:
    from petsc4py import PETSc

    if not isinstance(A, PETSc.Mat):
        return A
    import scipy.sparse

    if A.getComm().getSize() > 1:
        raise ValueError("the matrix is spread over several ranks: write it to a file with A.view() and a binary viewer, and run "
                         "`finepc-try --ranks`")
    copy = A if A.getType() == PETSc.Mat.Type.SEQAIJ else A.convert(PETSc.Mat.Type.SEQAIJ, PETSc.Mat())
    rows, columns, values = copy.getValuesCSR()
    return scipy.sparse.csr_matrix((values, columns, rows), shape=A.getSize())


def _vector(b: typing.Any) -> typing.Any:
    from petsc4py import PETSc

    return b.getArray(readonly=True).copy() if isinstance(b, PETSc.Vec) else b
