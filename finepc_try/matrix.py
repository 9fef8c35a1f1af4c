"""Reads the matrices that finepc-try takes and writes them as the benchmark program reads them: as binary files of PETSc's."""
import os

import numpy
import scipy.sparse

from . import read_mtx

MAT_FILE_CLASSID = 1211216
VEC_FILE_CLASSID = 1211214


class TryError(Exception):
    """The matrix, an option, or the installation does not allow a run; the text says why and what helps."""


def load(matrix, rhs=None):
    """(CSR matrix, right-hand side or None, name) of a path, a scipy or numpy matrix, or a Mat of petsc4py's; `rhs` is a vector, or
    the path of a file with one: PETSc's binary, Matrix Market, numpy's .npy, or text"""
    b, name = None, "matrix"
    if isinstance(matrix, (str, os.PathLike)):
        path = os.fspath(matrix)
        name = name_of(path)
        A, b = _matrix_file(path)
    elif hasattr(matrix, "getValuesCSR"):
        if matrix.getComm().getSize() > 1:
            raise TryError("The matrix is distributed over several ranks; write it to a file and give that file")
        indptr, indices, data = matrix.getValuesCSR()
        A = scipy.sparse.csr_matrix((data, indices, indptr), shape=matrix.getSize())
        named = matrix.getName() or ""
        name = name if not named or named.startswith("Mat_0x") else named
    else:
        try:
            A = scipy.sparse.csr_matrix(matrix)
        except (TypeError, ValueError) as error:
            raise TryError(f"This is neither a path nor a matrix of scipy, numpy or petsc4py: {error}") from error
    if rhs is not None:
        b = _vector_file(os.fspath(rhs)) if isinstance(rhs, (str, os.PathLike)) else numpy.asarray(rhs)
    return _checked_matrix(A), _checked_vector(b, A.shape[0]), name


def name_of(path):
    name = os.path.basename(path)
    for ending in (".gz", ".xz", ".petsc", ".mtx"):
        if name.endswith(ending) and len(name) > len(ending):
            name = name[: -len(ending)]
    return name


def write(path, A, b):
    """A PETSc binary file with the matrix and the right-hand side, with indices of 4 bytes"""
    with open(path, "wb") as file:
        read_mtx.write(file, A, 4)
        file.write(numpy.array([VEC_FILE_CLASSID, len(b)], dtype=">i4").tobytes())
        file.write(b.astype(">f8").tobytes())


def points(coordinates, rows, block_size):
    """A vector with the coordinates of each point, for as many dimensions as there are unknowns at a point"""
    if isinstance(coordinates, (str, os.PathLike)):
        path = os.fspath(coordinates)
        try:
            coordinates = numpy.load(path) if path.endswith(".npy") else numpy.loadtxt(path, ndmin=2)
        except (OSError, ValueError) as error:
            raise TryError(f"Cannot read {path}: {error}") from error
    x = numpy.asarray(coordinates, dtype=float)
    if block_size not in (2, 3):
        raise TryError(f"Rigid body modes are for 2 or 3 unknowns a point, and here it is {block_size}: --block-size sets another")
    if x.size != rows or (x.ndim == 2 and x.shape[1] != block_size):
        raise TryError(f"There must be {rows // block_size} points with {block_size} coordinates each; the shape is "
                       f"{' by '.join(map(str, x.shape))}")
    if not numpy.isfinite(x).all():
        raise TryError("A coordinate is not finite")
    return x.reshape(-1)


def write_vector(path, x):
    with open(path, "wb") as file:
        file.write(numpy.array([VEC_FILE_CLASSID, len(x)], dtype=">i4").tobytes())
        file.write(x.astype(">f8").tobytes())


# ------------------------------------------- files --------------------------------------------


def _is_matrix_market(path):
    with read_mtx.opened(path) as file:
        return file.read(14).lower() == b"%%matrixmarket"


def _matrix_file(path):
    try:
        if _is_matrix_market(path):
            return read_mtx.read(path, 4), None
        with read_mtx.opened(path) as file:
            data = file.read()
        return _petsc_matrix(data)
    except TryError as error:
        raise TryError(f"Cannot read {path}: {error}") from error
    except Exception as error:  # of scipy's, gzip's, lzma's and the system's there are many
        raise TryError(f"Cannot read {path}: {error or type(error).__name__}") from error


def _petsc_matrix(data):
    """The matrix with which a binary file of PETSc's begins, and the vector after it, where there is one"""
    integer = next((size for size in (4, 8) if data[:size] == MAT_FILE_CLASSID.to_bytes(size, "big")), None)
    if not integer:
        raise TryError("it begins neither with %%MatrixMarket nor as PETSc's binary files of matrices do")
    at = integer

    def take(count, kind, size):
        nonlocal at
        if count < 0 or at + count * size > len(data):
            raise TryError("the file ends too early, or its sizes are wrong")
        values = numpy.frombuffer(data, dtype=f">{kind}{size}", count=count, offset=at)
        at += count * size
        return values

    rows, columns, entries = (int(size) for size in take(3, "i", integer))
    if min(rows, columns, entries) < 0:
        raise TryError("the matrix is not stored as a sparse one (MatView() of a MATAIJ writes such files)")
    if max(rows, columns, entries) >= 2**31:
        raise TryError("it has more rows or entries than 32-bit indices count")
    lengths = take(rows, "i", integer)
    if lengths.sum() != entries or (len(lengths) and lengths.min() < 0):
        raise TryError("the lengths of its rows do not add up to its number of entries")
    indptr = numpy.concatenate(([0], numpy.cumsum(lengths)))
    indices, values = take(entries, "i", integer), take(entries, "f", 8)
    if entries and not (0 <= indices.min() and indices.max() < columns):
        raise TryError("it has an entry in a column that the matrix does not have")
    A = scipy.sparse.csr_matrix((values.astype(float), indices.astype(numpy.int32), indptr), shape=(rows, columns))
    A.sum_duplicates()
    if at == len(data):
        return A, None
    return A, _petsc_vector(data[at:], integer)


def _petsc_vector(data, integer):
    if data[:integer] != VEC_FILE_CLASSID.to_bytes(integer, "big"):
        raise TryError("what follows the matrix is no vector of PETSc's")
    size = int.from_bytes(data[integer : 2 * integer], "big")
    if len(data) < 2 * integer + 8 * size:
        raise TryError("the file ends within the right-hand side")
    return numpy.frombuffer(data, dtype=">f8", count=size, offset=2 * integer).astype(float)


def _vector_file(path):
    try:
        if path.endswith(".npy"):
            return numpy.load(path)
        with read_mtx.opened(path) as file:
            data = file.read()
        for integer in (4, 8):
            if data[:integer] == VEC_FILE_CLASSID.to_bytes(integer, "big"):
                return _petsc_vector(data, integer)
        if data[:14].lower() == b"%%matrixmarket":
            import scipy.io
            b = scipy.io.mmread(path)
            return b.toarray() if scipy.sparse.issparse(b) else b
        return numpy.array(data.split(), dtype=float)
    except Exception as error:
        raise TryError(f"Cannot read the right-hand side {path}: {error or type(error).__name__}") from error


# ------------------------------------------- checks -------------------------------------------


def _checked_matrix(A):
    """What no solver here takes is an error that names the first row of it."""
    if A.shape[0] != A.shape[1] or A.shape[0] == 0:
        raise TryError(f"A matrix of {A.shape[0]} by {A.shape[1]} is no linear system")
    if max(A.shape[0], A.nnz) >= 2**31:
        raise TryError("The matrix has more rows or entries than 32-bit indices count")
    if numpy.iscomplexobj(A.data):
        raise TryError("The matrix is complex; finepc works with real numbers")
    if A.data.dtype != numpy.float64:
        # Not A.astype(), which in some releases of scipy sums duplicates first, in the narrower type and the caller's arrays
        A = scipy.sparse.csr_matrix((A.data.astype(numpy.float64), A.indices, A.indptr), shape=A.shape)
    if not A.has_canonical_format:
        A = A.copy()  # The caller's arrays stay as they are.
        A.sum_duplicates()
    if not numpy.isfinite(A.data).all():
        entry = int(numpy.flatnonzero(~numpy.isfinite(A.data))[0])
        row = int(numpy.searchsorted(A.indptr, entry, side="right")) - 1
        raise TryError(f"Row {row}, counted from 0, has the entry {A.data[entry]} in column {A.indices[entry]}")
    sizes = numpy.zeros(A.shape[0])
    numpy.add.at(sizes, _rows(A), numpy.abs(A.data))
    if not sizes.all():
        raise TryError(f"Row {int(numpy.flatnonzero(sizes == 0)[0])}, counted from 0, has no entry but zeros, so that the matrix "
                       "is singular; leave such rows out or put a number on their diagonal")
    return A


def _rows(A):
    return numpy.repeat(numpy.arange(A.shape[0]), numpy.diff(A.indptr))


def _checked_vector(b, size):
    if b is None:
        return None
    b = numpy.asarray(b).squeeze()
    if b.shape != (size,) or numpy.iscomplexobj(b):
        raise TryError(f"The right-hand side must be {size} real numbers; it has the shape {b.shape}")
    b = b.astype(float)
    if not numpy.isfinite(b).all():
        raise TryError("The right-hand side has entries that are not finite")
    if not b.any():
        raise TryError("The right-hand side is 0, and so is the solution; leave it out for a random one")
    return b
