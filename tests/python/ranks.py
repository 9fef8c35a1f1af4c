"""A program for two ranks: the factors are block diagonal, and the hierarchy is one of both ranks, or each rank's own."""
import numpy
from petsc4py import PETSc

import finepc

finepc.load()
assert PETSc.COMM_WORLD.getSize() == 2
n = 60
A = PETSc.Mat().createAIJ((n, n), nnz=3)
first, last = A.getOwnershipRange()
for row in range(first, last):
    A[row, row] = 2.5
    for column in (row - 1, row + 1):
        if 0 <= column < n:
            A[row, column] = -1
A.assemble()
pc = PETSc.PC().create()
pc.setOperators(A)
pc.setType("afsai")
pc.setUp()
G, Gt = finepc.PCAFSAIGetFactors(pc)
assert G.getComm().getSize() == 2 and G.getSizes() == A.getSizes()
x, y = A.createVecs()
x.setRandom()
pc.apply(x, y)
assert (y - Gt * (G * x)).norm() < 1e-6 * y.norm()
assert all(first <= column < last for row in range(first, last) for column in G.getRow(row)[0])
pc.setType("cmatch")
finepc.PCCMATCHSetCoarseSize(pc, 4)
pc.setUp()
of_both, between = finepc.PCCMATCHGetHierarchy(pc)
assert of_both[0].getSizes() == A.getSizes() and of_both[0].getComm().getSize() == 2
assert len(between) == len(of_both) - 1 > 0
finepc.PCCMATCHSetReach(pc, "local")
pc.setUp()
operators, prolongators = finepc.PCCMATCHGetHierarchy(pc)
assert operators[0].getSize() == (last - first, last - first) and operators[0].getComm().getSize() == 1
assert len(prolongators) == len(operators) - 1 > 0
operators, prolongators = of_both + operators, between + prolongators
for matrix in (G, Gt, *operators, *prolongators):
    assert matrix.getRefCount() == 1 and numpy.isfinite(matrix.norm())
print("two ranks agree", flush=True)
