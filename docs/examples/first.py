"""Solves a two-dimensional Laplacian with afsai:  python first.py /path/libfinepc.so [PETSc's options]"""
import sys

import petsc4py

petsc4py.init([sys.argv[0], "-dll_append", sys.argv[1], *sys.argv[2:]])
from petsc4py import PETSc  # noqa: E402: after init, as petsc4py wants it

n = 100
A = PETSc.Mat().create()
A.setSizes(n * n)
A.setFromOptions()  # -mat_type aijcusparse: on the GPU
A.setPreallocationNNZ(5)
for i in range(*A.getOwnershipRange()):
    A[i, i] = 4.0
    for j, inside in ((i - 1, i % n > 0), (i + 1, i % n < n - 1), (i - n, i >= n), (i + n, i + n < n * n)):
        if inside:
            A[i, j] = -1.0
A.assemble()
x, b = A.createVecs()
b.set(1.0)

ksp = PETSc.KSP().create()
ksp.setOperators(A)
ksp.setType("cg")
ksp.getPC().setType("afsai")
PETSc.Options()["pc_afsai_max_steps"] = 10
ksp.setFromOptions()
ksp.solve(b, x)
print("iterations:", ksp.getIterationNumber(), "reason:", ksp.getConvergedReason())
