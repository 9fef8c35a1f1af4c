"""A rotating elastic block as in DOLFINx's demo_elasticity, with its rigid body modes and other options of PETSc."""
import dolfinx_solver  # noqa: F401: before all that uses MPI, as the wheel wants it
import finepc
import numpy as np
import ufl
from dolfinx import fem, la, mesh
from dolfinx.fem.petsc import LinearProblem
from mpi4py import MPI
from petsc4py import PETSc

finepc.load()
domain = mesh.create_box(MPI.COMM_WORLD, ((0.0, 0.0, 0.0), (2.0, 1.0, 1.0)), (16, 8, 8))
V = fem.functionspace(domain, ("Lagrange", 1, (3,)))
E, nu, omega, rho = 1.0e9, 0.3, 300.0, 10.0
mu, lam = E / (2 * (1 + nu)), E * nu / ((1 + nu) * (1 - 2 * nu))
facets = mesh.locate_entities_boundary(domain, 2, lambda x: np.isclose(x[0], 0.0) | np.isclose(x[1], 1.0))
bc = fem.dirichletbc(np.zeros(3), fem.locate_dofs_topological(V, 2, facets), V)
u, v = ufl.TrialFunction(V), ufl.TestFunction(V)
x = ufl.SpatialCoordinate(domain)


def stress(w):
    return 2 * mu * ufl.sym(ufl.grad(w)) + lam * ufl.tr(ufl.sym(ufl.grad(w))) * ufl.Identity(3)


a = ufl.inner(stress(u), ufl.grad(v)) * ufl.dx
L = ufl.inner(ufl.as_vector((rho * omega**2 * x[0], rho * omega**2 * x[1], 0.0)), v) * ufl.dx


def solve(name, options):
    problem = LinearProblem(a, L, bcs=[bc], petsc_options_prefix=f"{name}_",
                            petsc_options={**options, "ksp_error_if_not_converged": True})
    points = V.tabulate_dof_coordinates()[: V.dofmap.index_map.size_local]
    coordinates = PETSc.Vec().createWithArray(points.flatten(), bsize=3, comm=domain.comm)
    problem.A.setNearNullSpace(PETSc.NullSpace().createRigidBody(coordinates))
    return problem.solve().x.array, problem.solver.getIterationNumber()


exact, _ = solve("lu", {"ksp_type": "preonly", "pc_type": "lu"})
stop = {"ksp_rtol": 1e-8, "ksp_norm_type": "unpreconditioned"}
gamg = {"ksp_type": "cg", "pc_type": "gamg"}
smoothed = {**gamg, "mg_levels_ksp_chebyshev_esteig_steps": 40, "mg_levels_pc_type": "afsai", "mg_levels_pc_afsai_max_steps": 4}
taken = {}
for name, options in (("gamg", gamg), ("gamg_afsai", smoothed), ("cmatch", {"ksp_type": "cgfused", "pc_type": "cmatch"})):
    found, taken[name] = solve(name, {**options, **stop})
    print(f"FEniCSx, elasticity, {exact.size} rows: {name} {taken[name]} iterations")
    assert np.linalg.norm(found - exact) < 1e-6 * np.linalg.norm(exact)
assert taken["gamg_afsai"] <= 20 and taken["cmatch"] <= min(taken["gamg"], 20), taken
