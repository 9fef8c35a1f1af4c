"""Poisson's equation as in DOLFINx's demo_poisson, with other options of PETSc."""
import dolfinx_solver  # noqa: F401: before all that uses MPI, as the wheel wants it
import finepc
import numpy as np
import ufl
from dolfinx import fem, mesh
from dolfinx.fem.petsc import LinearProblem
from mpi4py import MPI

finepc.load()
domain = mesh.create_rectangle(MPI.COMM_WORLD, ((0.0, 0.0), (2.0, 1.0)), (192, 96), mesh.CellType.triangle)
V = fem.functionspace(domain, ("Lagrange", 1))
facets = mesh.locate_entities_boundary(domain, 1, lambda x: np.isclose(x[0], 0.0) | np.isclose(x[0], 2.0))
bc = fem.dirichletbc(0.0, fem.locate_dofs_topological(V, 1, facets), V)
u, v = ufl.TrialFunction(V), ufl.TestFunction(V)
x = ufl.SpatialCoordinate(domain)
f = 10 * ufl.exp(-((x[0] - 0.5) ** 2 + (x[1] - 0.5) ** 2) / 0.02)
a = ufl.inner(ufl.grad(u), ufl.grad(v)) * ufl.dx
L = ufl.inner(f, v) * ufl.dx + ufl.inner(ufl.sin(5 * x[0]), v) * ufl.ds


def solve(options):
    problem = LinearProblem(a, L, bcs=[bc], petsc_options_prefix=f"poisson_{options['pc_type']}_",
                            petsc_options={**options, "ksp_error_if_not_converged": True})
    return problem.solve().x.array, problem.solver.getIterationNumber()


exact, _ = solve({"ksp_type": "preonly", "pc_type": "lu"})
for pc, most in (("cmatch", 30), ("afsai", 200)):
    found, iterations = solve({"ksp_type": "cgfused", "pc_type": pc, "ksp_rtol": 1e-8, "ksp_norm_type": "unpreconditioned"})
    print(f"FEniCSx, Poisson, {exact.size} rows: {pc} {iterations} iterations")
    assert np.linalg.norm(found - exact) < 1e-6 * np.linalg.norm(exact) and iterations <= most
