"""Linear elasticity by scikit-fem, as a user of finite elements in Python has it: assembled by scipy, solved by PETSc."""
import numpy
import pytest
import scipy.sparse.linalg
import skfem
from conftest import dense, matrix_of, solver_of
from petsc4py import PETSc
from skfem.models.elasticity import lame_parameters, linear_elasticity

import finepc


@pytest.fixture(scope="module")
def cantilever():
    """A bar of hexahedra that is held at one end and bends under its weight; unknowns of a node follow each other."""
    mesh = skfem.MeshHex.init_tensor(numpy.linspace(0, 4, 13), numpy.linspace(0, 1, 4), numpy.linspace(0, 1, 4))
    basis = skfem.Basis(mesh, skfem.ElementVector(skfem.ElementHex1()))
    A = linear_elasticity(*lame_parameters(1e3, 0.3)).assemble(basis)
    weight = skfem.LinearForm(lambda v, _: -v[2]).assemble(basis)
    free = basis.complement_dofs(basis.get_dofs(lambda x: x[0] == 0))
    A, b = A[free][:, free].tocsr(), weight[free]
    return A, b, scipy.sparse.linalg.spsolve(A.tocsc(), b)


# The iterations of point Jacobi over those of a type, at least. A multilevel method gains nothing on so few unknowns.
GAINS = {"afsai": 1.1, "sfsai": 1.3, "bisai": 1.3, "cmatch": 0.8}


def iterations_of(cantilever, kind, ksp_type="cg"):
    A, b, exact = cantilever
    matrix = matrix_of(A)
    matrix.setBlockSize(3)
    ksp = solver_of(matrix, kind, ksp_type, rtol=1e-10)
    rhs, x = PETSc.Vec().createWithArray(b, comm=PETSc.COMM_SELF), matrix.createVecLeft()
    ksp.solve(rhs, x)
    assert numpy.linalg.norm(x.getArray() - exact) < 1e-6 * numpy.linalg.norm(exact)
    return ksp.getIterationNumber()


@pytest.mark.parametrize("kind", GAINS)
def test_solution_and_iterations(cantilever, kind):
    ksp_type = "gmres" if kind == "bisai" else "cg"
    jacobi, ours = iterations_of(cantilever, "jacobi", ksp_type), iterations_of(cantilever, kind, ksp_type)
    assert ours * GAINS[kind] <= jacobi, f"{ours} iterations with {kind}, {jacobi} with jacobi"


def test_cgfused(cantilever):
    assert abs(iterations_of(cantilever, "afsai", "cgfused") - iterations_of(cantilever, "afsai")) <= 1


def test_factor_in_scipy(cantilever):
    """The factor G as a scipy matrix: G A G^T has a much smaller condition number than A scaled by its diagonal."""
    A = cantilever[0]
    pc = PETSc.PC().create(PETSc.COMM_SELF)
    pc.setOperators(matrix_of(A))
    pc.setType("afsai")
    pc.setUp()
    G = finepc.PCAFSAIGetFactors(pc)[0]
    rows, columns, values = G.getValuesCSR()
    factor = scipy.sparse.csr_matrix((values, columns, rows), shape=A.shape)
    assert numpy.array_equal(factor.toarray(), dense(G))
    scale = scipy.sparse.diags(1 / numpy.sqrt(A.diagonal()))

    def condition(B):
        eigenvalues = numpy.linalg.eigvalsh(B.toarray())
        return eigenvalues[-1] / eigenvalues[0]

    assert condition(factor @ A @ factor.T) < condition(scale @ A @ scale) / 4
