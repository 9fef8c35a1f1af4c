#!/usr/bin/env python3
"""Writes the pressure matrix of SPE10 model 2 as a PETSc binary matrix:  make_spe10.py OUT.petsc [PERMEABILITY.npz]

Without a permeability it is the slab of ten layers beside this file; the whole model is an .npz with the arrays kx and kz, each
[layer, y, x] in mD, which is too large to be kept here.

Two-point fluxes between cells of 20 x 10 x 2 ft, harmonic averages of the permeability (mD), no flow through the boundary,
one well in the first cell, which makes the matrix positive definite."""
import lzma
import os
import sys

import numpy as np

MAT_FILE_CLASSID = 1211216  # opens a matrix in PETSc's binary format, which is big-endian


def permeability(path=None):
    """Horizontal and vertical permeability, each [layer, y, x]."""
    if path:
        data = np.load(path)
        return data["kx"].astype(float), data["kz"].astype(float)
    with lzma.open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "spe10_layers_35_44.npy.xz")) as f:
        return np.load(f)


def flux(k, axis, geometry):
    """Transmissibility of every cell to its next neighbour along the axis, 0 where there is none."""
    t = np.zeros(k.shape)
    here, there = np.moveaxis(k, axis, 0)[:-1], np.moveaxis(k, axis, 0)[1:]
    np.moveaxis(t, axis, 0)[:-1] = geometry * 2 * here * there / (here + there)
    return t.ravel()


def matrix(kxy, kz, dx=20.0, dy=10.0, dz=2.0):
    """CSR arrays of the 7-point matrix, columns ascending."""
    n, ny, nx = kxy.size, kxy.shape[1], kxy.shape[2]
    columns, values = np.zeros((n, 7), int), np.zeros((n, 7))
    in_x, in_y, in_z = flux(kxy, 2, dy * dz / dx), flux(kxy, 1, dx * dz / dy), flux(kz, 0, dx * dy / dz)
    for band, step, t in ((2, 1, in_x), (1, nx, in_y), (0, nx * ny, in_z)):
        values[:, 6 - band] = -t
        values[step:, band] = -t[: n - step]
        columns[:, 6 - band] = np.arange(n) + step
        columns[:, band] = np.arange(n) - step
    values[:, 3] = -values.sum(axis=1)
    values[0, 3] *= 2  # the well
    columns[:, 3] = np.arange(n)
    entry = values != 0
    return entry.sum(axis=1), columns[entry], values[entry]


def write(path, lengths, columns, values):
    with open(path, "wb") as f:
        np.array([MAT_FILE_CLASSID, lengths.size, lengths.size, values.size], ">i4").tofile(f)
        lengths.astype(">i4").tofile(f)
        columns.astype(">i4").tofile(f)
        values.astype(">f8").tofile(f)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    write(sys.argv[1], *matrix(*permeability(*sys.argv[2:])))
