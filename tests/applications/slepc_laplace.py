"""The lowest eigenvalues of a Laplacian on a square, as in slepc4py's demos; what solves is up to the options."""
import dolfinx_solver  # noqa: F401: the wheel that brings slepc4py
import finepc
import numpy as np
from petsc4py import PETSc
from slepc4py import SLEPc

finepc.load()
m, n = 60, 50
A = PETSc.Mat().createAIJ((m * n, m * n), nnz=5)
for row in range(*A.getOwnershipRange()):
    A[row, row] = 4
    i, j = divmod(row, n)
    for column, inside in ((row - n, i > 0), (row + n, i < m - 1), (row - 1, j > 0), (row + 1, j < n - 1)):
        if inside:
            A[row, column] = -1
A.assemble()
exact = np.sort([4 - 2 * np.cos(np.pi * i / (m + 1)) - 2 * np.cos(np.pi * j / (n + 1)) for i in range(1, 9) for j in range(1, 9)])


def solve(name, options, most):
    for key, value in options.items():
        PETSc.Options()[f"{name}_{key}"] = value
    eps = SLEPc.EPS().create()
    eps.setOptionsPrefix(f"{name}_")
    eps.setOperators(A)
    eps.setProblemType(SLEPc.EPS.ProblemType.HEP)
    eps.setDimensions(6)
    eps.setTolerances(1e-8, 200)
    eps.setFromOptions()
    eps.solve()
    assert eps.getConverged() >= 6
    found = np.sort([eps.getEigenvalue(k).real for k in range(6)])
    print(f"SLEPc, {m * n} rows: {name} {eps.getIterationNumber()} iterations")
    assert np.allclose(found, exact[:6], rtol=1e-7) and eps.getIterationNumber() <= most


solve("sinvert", {"st_type": "sinvert", "eps_target": 0, "st_ksp_type": "cgfused", "st_pc_type": "cmatch", "st_ksp_rtol": 1e-10}, 5)
solve("lobpcg", {"eps_type": "lobpcg", "eps_smallest_real": None, "st_type": "precond", "st_pc_type": "cmatch"}, 40)
