"""Steady diffusion with jumps in FiPy, whose solvers take the names of PETSc's preconditioners and so of finepc's."""
from mpi4py import MPI  # noqa: F401: FiPy's own import of it comes after PETSc's
import finepc
import fipy
import numpy as np
from fipy.solvers.petsc import LinearCGSolver, LinearLUSolver

finepc.load()
n = 100
mesh = fipy.Grid2D(nx=n, ny=n, dx=1.0 / n, dy=1.0 / n)
x, y = mesh.faceCenters
conductivity = fipy.FaceVariable(mesh=mesh, value=np.where((np.floor(8 * x) + np.floor(8 * y)) % 2 == 0, 1000.0, 1.0))


def solve(solver):
    phi = fipy.CellVariable(mesh=mesh, value=0.0)
    phi.constrain(1.0, mesh.facesLeft)
    phi.constrain(0.0, mesh.facesRight)
    (fipy.DiffusionTerm(coeff=conductivity) + 1.0).solve(var=phi, solver=solver)
    return phi.value


exact = solve(LinearLUSolver(tolerance=1e-12))
for name, most in (("cmatch", 30), ("afsai", 260)):
    solver = LinearCGSolver(tolerance=1e-10, iterations=1000, precon=name)
    found = solve(solver)
    print(f"FiPy, {n * n} cells: {name} {solver.convergence.iterations} iterations")
    assert np.linalg.norm(found - exact) < 1e-6 * np.linalg.norm(exact) and solver.convergence.iterations <= most
