"""Solves with given types (-ksp, default cg; -pc, default jacobi) through petsc4py; arguments go to petsc4py.init()."""
import sys

import petsc4py

petsc4py.init(sys.argv)
from petsc4py import PETSc  # noqa: E402: after init, as petsc4py wants it

n = 100
A = PETSc.Mat().createAIJ((n, n), nnz=3)
for row in range(*A.getOwnershipRange()):
    A[row, row] = 2.5
    for column in (row - 1, row + 1):
        if 0 <= column < n:
            A[row, column] = -1
A.assemble()
x, b = A.createVecs()
b.set(1)
ksp = PETSc.KSP().create()
ksp.setOperators(A)
ksp.setType(PETSc.Options().getString("ksp", "cg"))
ksp.getPC().setType(PETSc.Options().getString("pc", "jacobi"))
ksp.setFromOptions()
ksp.solve(b, x)
r = b - A * x
print("ksp", ksp.getType(), "pc", ksp.getPC().getType(), "iterations", ksp.getIterationNumber(), end=" ")
print("residual below 1e-4:", r.norm() < 1e-4 * b.norm())
