#!/usr/bin/env python3
"""Systems for the table of hops and layers, as PETSc binary files in a folder:  overlap_systems.py FOLDER [STRUCTURE.petsc.gz ..]

poisson_boxes4 and poisson_boxes8 are the 7-point Poisson matrix of 32^3 points, numbered box by box as by a DMDA on 4 and 8 ranks:
on so many ranks each has a box. STRUCTURE_rhs1 to _rhs5 are a matrix with five random right-hand sides, for matrices whose
iterations say little with one: rounding moves them by 10 %."""
import gzip
import os
import sys

import numpy as np

MAT_FILE_CLASSID, VEC_FILE_CLASSID = 1211216, 1211214  # open a matrix and a vector in PETSc's binary format, which is big-endian
POINTS, RIGHT_HAND_SIDES = 32, 5


def write_poisson(path, boxes):
    """boxes: their number in the directions x, y and z"""
    n = POINTS
    grid = np.arange(n**3).reshape(n, n, n)  # z, y, x
    order = np.concatenate([part.ravel() for z in np.split(grid, boxes[2], 0) for y in np.split(z, boxes[1], 1)
                            for part in np.split(y, boxes[0], 2)])
    number = np.empty(n**3, int)
    number[order] = np.arange(n**3)
    rows, columns, values = [number[grid].ravel()], [number[grid].ravel()], [np.full(n**3, 6.0)]
    for axis in range(3):
        low = number[np.moveaxis(grid, axis, 0)[:-1]].ravel()
        high = number[np.moveaxis(grid, axis, 0)[1:]].ravel()
        rows += [low, high]
        columns += [high, low]
        values += [np.full(2 * low.size, -1.0)]
    rows, columns, values = (np.concatenate(part) for part in (rows, columns, values))
    at = np.lexsort((columns, rows))
    with open(path, "wb") as file:
        np.array([MAT_FILE_CLASSID, n**3, n**3, values.size], ">i4").tofile(file)
        np.bincount(rows).astype(">i4").tofile(file)
        columns[at].astype(">i4").tofile(file)
        values[at].astype(">f8").tofile(file)


def write_right_hand_sides(folder, path):
    with gzip.open(path) as file:
        matrix = file.read()
    rows = int(np.frombuffer(matrix, ">i4", 2)[1])
    for k in range(1, RIGHT_HAND_SIDES + 1):
        with open(f"{folder}/{os.path.basename(path).split('.')[0]}_rhs{k}.petsc", "wb") as file:
            file.write(matrix)
            np.array([VEC_FILE_CLASSID, rows], ">i4").tofile(file)
            np.random.RandomState(k).uniform(-1, 1, rows).astype(">f8").tofile(file)


if len(sys.argv) < 2:
    sys.exit(__doc__)
write_poisson(f"{sys.argv[1]}/poisson_boxes4.petsc", (2, 2, 1))
write_poisson(f"{sys.argv[1]}/poisson_boxes8.petsc", (2, 2, 2))
for structure in sys.argv[2:]:
    write_right_hand_sides(sys.argv[1], structure)
