"""Stokes flow in a driven cavity as in DOLFINx's demo_stokes, with nested matrices, blocks, and other options of PETSc."""
import dolfinx_solver  # noqa: F401: before all that uses MPI, as the wheel wants it
import finepc
import numpy as np
import ufl
from dolfinx import fem, mesh
from dolfinx.fem.petsc import LinearProblem
from mpi4py import MPI

finepc.load()
domain = mesh.create_unit_square(MPI.COMM_WORLD, 32, 32)
V, Q = fem.functionspace(domain, ("Lagrange", 2, (2,))), fem.functionspace(domain, ("Lagrange", 1))
walls = mesh.locate_entities_boundary(domain, 1, lambda x: np.isclose(x[0], 0) | np.isclose(x[0], 1) | np.isclose(x[1], 0))
lid = mesh.locate_entities_boundary(domain, 1, lambda x: np.isclose(x[1], 1))
moving = fem.Function(V)
moving.interpolate(lambda x: np.stack((np.ones(x.shape[1]), np.zeros(x.shape[1]))))
bcs = [fem.dirichletbc(np.zeros(2), fem.locate_dofs_topological(V, 1, walls), V),
       fem.dirichletbc(moving, fem.locate_dofs_topological(V, 1, lid))]
(u, p), (v, q) = (ufl.TrialFunction(V), ufl.TrialFunction(Q)), (ufl.TestFunction(V), ufl.TestFunction(Q))
a = [[ufl.inner(ufl.grad(u), ufl.grad(v)) * ufl.dx, ufl.inner(p, ufl.div(v)) * ufl.dx],
     [ufl.inner(ufl.div(u), q) * ufl.dx, None]]
L = [ufl.inner(fem.Constant(domain, np.zeros(2)), v) * ufl.dx, ufl.ZeroBaseForm((q,))]
preconditioner = [[a[0][0], None], [None, ufl.inner(p, q) * ufl.dx]]


def solve(name, options):
    flow, pressure = fem.Function(V, name="u"), fem.Function(Q, name="p")
    problem = LinearProblem(a, L, u=[flow, pressure], P=preconditioner, kind="nest", bcs=bcs, petsc_options_prefix=f"{name}_",
                            petsc_options={
                                "ksp_type": "minres", "ksp_rtol": 1e-9, "pc_type": "fieldsplit", "pc_fieldsplit_type": "additive",
                                "fieldsplit_u_ksp_type": "preonly", "fieldsplit_p_ksp_type": "preonly",
                                **options, "ksp_error_if_not_converged": True})
    problem.solve()
    return flow.x.array, problem.solver.getIterationNumber()


exact, with_lu = solve("lu", {"fieldsplit_u_pc_type": "lu", "fieldsplit_p_pc_type": "lu"})
found, iterations = solve("finepc", {
    "fieldsplit_u_pc_type": "cmatch", "fieldsplit_p_pc_type": "sfsai", "fieldsplit_p_pc_sfsai_power": 1})
print(f"FEniCSx, Stokes, {exact.size} rows of velocities: cmatch and sfsai {iterations} iterations, LU of both blocks {with_lu}")
assert np.linalg.norm(found - exact) < 1e-5 * np.linalg.norm(exact) and iterations <= 140
