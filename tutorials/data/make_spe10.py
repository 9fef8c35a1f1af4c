#!/usr/bin/env python3
"""Writes the pressure matrix of SPE10 model 2 as a PETSc binary matrix:  make_spe10.py OUT.petsc [PERMEABILITY.npz] [--elements]

Without a permeability it is the slab of ten layers beside this file; the whole model is an .npz with the arrays kx and kz, each
[layer, y, x] in mD, which is too large to be kept here.

Two-point fluxes between cells of 20 x 10 x 2 ft, harmonic averages of the permeability (mD), no flow through the boundary,
one well in the first cell, which makes the matrix positive definite. With --elements trilinear finite elements instead, one for a
third of the height of a cell, without the last layer: of the whole model 61 x 221 x 253 nodes."""
import itertools
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


def elements(kxy, kz, dx=20.0, dy=10.0, dz=2.0 / 3):
    """CSR arrays of the 27-point matrix of trilinear elements, three in the height of a cell, columns ascending."""
    kxy, kz = (np.repeat(k[:-1], 3, axis=0) for k in (kxy, kz))
    nodes = tuple(n + 1 for n in kxy.shape)
    values, inside = np.zeros((*nodes, 27)), np.zeros((*nodes, 27), bool)
    for here, there in itertools.product(itertools.product(range(2), repeat=3), repeat=2):
        same = [a == b for a, b in zip(here, there)]
        slope = [(1 if equal else -1) / h for equal, h in zip(same, (dz, dy, dx))]
        mass = [(2 if equal else 1) * h / 6 for equal, h in zip(same, (dz, dy, dx))]
        entry = (mass[0] * (slope[1] * mass[2] + mass[1] * slope[2])) * kxy + slope[0] * mass[1] * mass[2] * kz
        at = (*(slice(a, a + n) for a, n in zip(here, kxy.shape)), sum(w * (b - a + 1) for w, a, b in zip((9, 3, 1), here, there)))
        values[at] += entry
        inside[at] = True
    values[0, 0, 0, 13] *= 2  # the well
    steps = [z * nodes[1] * nodes[2] + y * nodes[2] + x for z, y, x in itertools.product((-1, 0, 1), repeat=3)]
    columns = (np.arange(np.prod(nodes), dtype=np.int32)[:, None] + np.array(steps, np.int32)).reshape(inside.shape)
    return inside.reshape(-1, 27).sum(axis=1), columns[inside], values[inside]


def write(path, lengths, columns, values):
    with open(path, "wb") as f:
        np.array([MAT_FILE_CLASSID, lengths.size, lengths.size, values.size], ">i4").tofile(f)
        lengths.astype(">i4").tofile(f)
        columns.astype(">i4").tofile(f)
        values.astype(">f8").tofile(f)


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--elements"]
    if len(arguments) not in (1, 2):
        sys.exit(__doc__)
    make = elements if "--elements" in sys.argv else matrix
    write(arguments[0], *make(*permeability(*arguments[1:])))
