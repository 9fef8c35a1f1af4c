"""The PETSc that all tests of this folder share, with finepc loaded into it after it was initialized."""
import numpy
import pytest
from petsc4py import PETSc

import finepc


@pytest.fixture(autouse=True)
def loaded():
    finepc.load()


def matrix_of(A, comm=PETSc.COMM_SELF):
    """A petsc4py Mat of a scipy matrix"""
    A = A.tocsr()
    A.sort_indices()
    arrays = A.indptr.astype(PETSc.IntType), A.indices.astype(PETSc.IntType), A.data.astype(numpy.float64)
    return PETSc.Mat().createAIJ(A.shape, csr=arrays, comm=comm)


def solver_of(A, pc_type, ksp_type="cg", rtol=1e-8):
    ksp = PETSc.KSP().create(A.getComm())
    ksp.setOperators(A)
    ksp.setType(ksp_type)
    ksp.getPC().setType(pc_type)
    ksp.setTolerances(rtol=rtol, max_it=2000)
    ksp.setErrorIfNotConverged(True)
    return ksp


def dense(A):
    return A.convert("dense", PETSc.Mat()).getDenseArray().copy()


@pytest.fixture
def laplacian():
    """A two-dimensional 5-point stencil on 12 x 12 points"""
    import scipy.sparse as sparse

    line = sparse.diags([-1, 2, -1], [-1, 0, 1], shape=(12, 12))
    return matrix_of(sparse.kron(line, sparse.eye(12)) + sparse.kron(sparse.eye(12), line))
