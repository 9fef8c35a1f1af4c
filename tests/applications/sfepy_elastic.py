"""An elastic block with SfePy, after its interactive example, whose solver ls.petsc takes PETSc's names and so finepc's."""
import dolfinx_solver  # noqa: F401: the wheel that brings petsc4py
import finepc
import numpy as np
from sfepy.base.base import IndexedStruct, output
from sfepy.discrete import Equation, Equations, FieldVariable, Integral, Material, Problem
from sfepy.discrete.conditions import Conditions, EssentialBC
from sfepy.discrete.fem import FEDomain, Field
from sfepy.mechanics.matcoefs import stiffness_from_lame
from sfepy.mesh.mesh_generators import gen_block_mesh
from sfepy.solvers.ls import PETScKrylovSolver, ScipyDirect
from sfepy.solvers.nls import Newton
from sfepy.terms import Term

finepc.load()
output.set_output(quiet=True)
n = 6
mesh = gen_block_mesh([4, 1, 1], [4 * n + 1, n + 1, n + 1], [2, 0, 0], name="block", verbose=False)
domain = FEDomain("domain", mesh)
omega = domain.create_region("Omega", "all")
left = domain.create_region("Left", "vertices in x < 0.00001", "facet")
field = Field.from_args("fu", np.float64, "vector", omega, approx_order=1)


def solve(solver):
    u, v = FieldVariable("u", "unknown", field), FieldVariable("v", "test", field, primary_var_name="u")
    m, f = Material("m", D=stiffness_from_lame(dim=3, lam=1.0e5, mu=0.8e5)), Material("f", val=[[0.0], [0.0], [-1.0]])
    integral = Integral("i", order=2)
    balance = Equation("balance", Term.new("dw_lin_elastic(m.D, v, u)", integral, omega, m=m, v=v, u=u)
                       - Term.new("dw_volume_lvf(f.val, v)", integral, omega, f=f, v=v))
    problem = Problem("elasticity", equations=Equations([balance]))
    problem.set_bcs(ebcs=Conditions([EssentialBC("fix", left, {"u.all": 0.0})]))
    problem.set_solver(Newton({"i_max": 1, "eps_a": 1e-6}, lin_solver=solver, status=IndexedStruct()))
    return problem.solve(save_results=False, verbose=False)()


exact = solve(ScipyDirect({}))
for precond, most, options in (("cmatch", 110, {}), ("sfsai", 160, {"pc_sfsai_power": "1"})):
    solver = PETScKrylovSolver({"method": "cg", "precond": precond, "eps_r": 1e-10, "eps_a": 1e-50, "i_max": 1000, **options})
    found = solve(solver)
    iterations = solver.ksp.getIterationNumber()
    print(f"SfePy, {exact.size} unknowns: {precond} {iterations} iterations")
    assert np.linalg.norm(found - exact) < 1e-6 * np.linalg.norm(exact) and iterations <= most
