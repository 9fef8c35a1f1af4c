"""Poisson's equation in NGSolve, solved by ngsPETSc's KrylovSolver as in its documentation, with other options."""
import dolfinx_solver  # noqa: F401: the wheel that brings petsc4py
import finepc
import ngsolve
import numpy as np
from netgen.csg import unit_cube
from ngsPETSc import KrylovSolver

finepc.load()
mesh = ngsolve.Mesh(unit_cube.GenerateMesh(maxh=0.1))
for order, pc, most in ((1, "cmatch", 30), (2, "sfsai", 60)):
    fes = ngsolve.H1(mesh, order=order, dirichlet=".*")
    u, v = fes.TnT()
    a = ngsolve.BilinearForm(ngsolve.grad(u) * ngsolve.grad(v) * ngsolve.dx).Assemble()
    f = ngsolve.LinearForm(ngsolve.exp(-10 * ((ngsolve.x - 0.3) ** 2 + (ngsolve.y - 0.5) ** 2)) * v * ngsolve.dx).Assemble()
    exact, found = ngsolve.GridFunction(fes), ngsolve.GridFunction(fes)
    exact.vec.data = a.mat.Inverse(fes.FreeDofs()) * f.vec
    solver = KrylovSolver(a, fes, solverParameters={
        "ksp_type": "cgfused", "pc_type": pc, "ksp_rtol": 1e-8, "ksp_norm_type": "unpreconditioned"})
    solver.solve(f.vec, found.vec)
    iterations = solver.ksp.getIterationNumber()
    print(f"NGSolve, order {order}, {fes.ndof} unknowns: {pc} {iterations} iterations")
    assert np.linalg.norm(found.vec.FV().NumPy() - exact.vec.FV().NumPy()) < 1e-6 * exact.vec.Norm() and iterations <= most
