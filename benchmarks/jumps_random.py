#!/usr/bin/env python3
"""The system with random jumps of the prototype of cmatch on several ranks, as a PETSc binary file:  jumps_random.py FILE.petsc

-div(k grad u) by finite volumes on 64^3 cells, numbered naturally, with harmonic means on the faces and a face on the boundary
(Dirichlet) with its cell's own k, which is 1 or 1e4 in cubes of 8 cells a side. The prototype's cubes are those of
numpy.random.default_rng(1).random((8, 8, 8)) < 0.5, which are written down here, so that no numpy is needed."""
import array
import sys

MAT_FILE_CLASSID = 1211216  # opens a matrix in PETSc's binary format, which is big-endian
N, CUBE, CONTRAST = 64, 8, 1e4
# A line for each z, a byte for each y, a bit for each x: the cubes that have the contrast.
STIFF = [bytes.fromhex(line) for line in (
    "b4d26f98d008d138", "c60aaafb25eab9f8", "07f0a47561696b0b", "fd8206537d81f7d8",
    "dfe6cd131c9d69c6", "bb67d255dec2b511", "77ed68eb68ede149", "d66c81e0de1572f7")]
# Neighbours in the order of their numbers, with the cell itself between them.
STEPS = ((0, 0, -1), (0, -1, 0), (-1, 0, 0), (0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))


def coefficient(x, y, z):
    return CONTRAST if STIFF[z // CUBE][y // CUBE] >> x // CUBE & 1 else 1.


def rows():
    """The columns and values of each row."""
    k = [coefficient(x, y, z) for z in range(N) for y in range(N) for x in range(N)]
    for row, here in enumerate(k):
        point = row % N, row // N % N, row // N**2
        columns, values, total = [], [], 0.
        for step in STEPS:
            column = row + step[0] + N * (step[1] + N * step[2])
            inside = all(0 <= p + s < N for p, s in zip(point, step))
            flux = 0. if column == row else 2 * here * k[column] / (here + k[column]) if inside else here
            total += flux
            if inside:
                columns.append(column)
                values.append(-flux)
        values[columns.index(row)] = total
        yield columns, values


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    length, column, value = array.array("i"), array.array("i"), array.array("d")
    for columns, values in rows():
        length.append(len(columns))
        column.extend(columns)
        value.extend(values)
    head = array.array("i", [MAT_FILE_CLASSID, N**3, N**3, len(column)])
    with open(sys.argv[1], "wb") as file:
        for numbers in (head, length, column, value):
            if sys.byteorder == "little":
                numbers.byteswap()
            numbers.tofile(file)


main()
