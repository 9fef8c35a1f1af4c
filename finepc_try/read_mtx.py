"""Reads Matrix Market files by scipy, after a look at what some releases of scipy take for a matrix and should not.

As a program it writes the matrix to the standard output as a binary file of PETSc's:

    read_mtx.py FILE.mtx[.gz|.xz] BYTES_OF_AN_INDEX > FILE.petsc
"""
import gzip
import lzma
import re
import sys
import warnings

import numpy
import scipy.io

ENTRY = re.compile(rb"\s*\d+\s+\d+\s+[-+.\deE]+\s*")


def opened(path):
    """The file, unpacked where its name says that it is packed"""
    return {".gz": gzip.open, ".xz": lzma.open}.get(path[-3:], open)(path, "rb")


def check(path, limit):
    """Refuses what some releases of scipy take for a matrix, read as other numbers, or read without an end."""
    with opened(path) as file:
        banner = file.readline().decode(errors="replace").lower().split()
        if len(banner) != 5 or banner[0] != "%%matrixmarket":
            raise ValueError("it does not begin with %%MatrixMarket and four words")
        known = (["matrix"], ["coordinate"], ["real", "integer"], ["general", "symmetric"])
        if not all(word in words for word, words in zip(banner[1:], known)):
            raise ValueError(f"it is {' '.join(banner[1:])}, but must be matrix coordinate, real or integer, general or symmetric")
        lines = ((k, line) for k, line in enumerate(file, 2) if line.strip() and not line.startswith(b"%"))
        sizes = next(lines, (0, b""))[1].split()
        if len(sizes) != 3 or not all(size.isdigit() for size in sizes):
            raise ValueError("its line of sizes does not have three whole numbers, of which none is negative")
        rows, columns, entries = map(int, sizes)
        if max(rows, columns, entries * (2 if banner[4] == "symmetric" else 1)) >= limit:
            raise ValueError(f"it has {rows} rows, {columns} columns and {entries} entries, but PETSc's indices end at {limit - 1}")
        found = 0
        for k, line in lines:
            if not ENTRY.fullmatch(line):
                raise ValueError(f"line {k} is not a row, a column and a value")
            found += 1
        if found != entries:
            raise ValueError(f"it has {found} entries, but says that there are {entries}")


def read(path, index_bytes):
    """The matrix of a file, as scipy's CSR; an error where PETSc's indices of so many bytes cannot hold it"""
    check(path, 256**index_bytes // 2)
    with warnings.catch_warnings(), opened(path) as file:
        warnings.simplefilter("error")  # older ones of numpy's only warn of indices that they cannot hold
        matrix = scipy.io.mmread(file).tocsr()
    matrix.sum_duplicates()
    return matrix


def write(file, matrix, index_bytes):
    """Writes a CSR matrix to an open file as PETSc's binary files have it."""
    # 1211216 is the number with which a matrix begins.
    for part in ((1211216, *matrix.shape, matrix.nnz), numpy.diff(matrix.indptr), matrix.indices):
        file.write(numpy.asarray(part).astype(f">i{index_bytes}").tobytes())
    file.write(matrix.data.astype(">f8").tobytes())


if __name__ == "__main__":
    try:
        write(sys.stdout.buffer, read(sys.argv[1], int(sys.argv[2])), int(sys.argv[2]))
        sys.stdout.buffer.flush()
    except Exception as error:  # of scipy's there are many
        sys.exit(str(error) or type(error).__name__)
