"""Two phases in a reservoir with winding channels, one step of Newton's method: pressure and water saturation in each cell, with
upwind mobilities. The unknowns of a cell have successive numbers; the first equation of a cell is the sum of both balances.

    python reservoir.py -dll_append /path/libfinepc.so -n 60 -ksp_type gmresfused ..."""
import sys

import numpy as np
import petsc4py

petsc4py.init(sys.argv)
from petsc4py import PETSc  # noqa: E402

n = PETSc.Options().getInt("n", 60)                 # cells in each direction
dt = PETSc.Options().getReal("dt", 10)              # length of the time step
contrast = PETSc.Options().getReal("contrast", 1e4) # permeability of the channels, 1 around them

y, x = np.mgrid[0:n, 0:n] / n
permeability = np.where(abs(y - 0.5 - 0.3 * np.sin(6 * x)) < 0.12, contrast, 1.0)
saturation = np.clip(1 - x - y / 2, 0.05, 0.95)
pressure = 2 - x - y

A = PETSc.Mat().create(PETSc.COMM_SELF)
A.setSizes(2 * n * n)
A.setBlockSize(2)
A.setFromOptions()
A.setPreallocationNNZ(10)
for i in range(n):
    for j in range(n):
        here = np.array([[0, 1 / dt], [0, -1 / dt]])  # rows: water, oil; columns: pressure, saturation
        for a, b in ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)):
            if not (0 <= a < n and 0 <= b < n):
                continue
            face = 2 / (1 / permeability[i, j] + 1 / permeability[a, b])
            drop = pressure[i, j] - pressure[a, b]
            s = saturation[i, j] if drop > 0 else saturation[a, b]
            mobility, slope = np.array([s**2, 3 * (1 - s)**2]), np.array([2 * s, -6 * (1 - s)])
            there = np.zeros((2, 2))
            here[:, 0] += face * mobility
            there[:, 0] -= face * mobility
            (here if drop > 0 else there)[:, 1] += face * slope * drop
            A.setValuesBlocked([i * n + j], [a * n + b], [there[0] + there[1], there[0]])
        here = np.array([here[0] + here[1], here[0]])
        if (i, j) in ((0, 0), (n - 1, n - 1)):
            here[0, 0] += contrast                    # a well that holds the pressure
        A.setValuesBlocked([i * n + j], [i * n + j], here)
A.assemble()
u, b = A.createVecs()
b.setArray(np.random.default_rng(2).standard_normal(2 * n * n))
ksp = PETSc.KSP().create(PETSc.COMM_SELF)
ksp.setOperators(A)
ksp.setTolerances(rtol=1e-8, max_it=2000)
ksp.setFromOptions()
ksp.solve(b, u)
print(f"reason {ksp.getConvergedReason()}, {ksp.getIterationNumber()} iterations, residual {(b - A * u).norm() / b.norm():.1e}")
