#!/usr/bin/env python3
"""Systems for the table of hops and layers, as PETSc binary files in a folder:  overlap_systems.py FOLDER [STRUCTURE.petsc.gz ..]

STRUCTURE_rhs1 to _rhs5 are a matrix with five random right-hand sides, for matrices whose iterations say little with one: rounding
moves them by 10 %."""
import gzip
import os
import sys

import numpy as np

VEC_FILE_CLASSID = 1211214  # opens a vector in PETSc's binary format, which is big-endian
RIGHT_HAND_SIDES = 5


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
for structure in sys.argv[2:]:
    write_right_hand_sides(sys.argv[1], structure)
