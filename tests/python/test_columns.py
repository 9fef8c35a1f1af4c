"""Several right-hand sides by matSolve(), and what finepc tells of each."""
import numpy
from conftest import solver_of
from petsc4py import PETSc

import finepc


def test_columns(laplacian):
    n, columns = laplacian.getSize()[0], 11
    values = numpy.random.default_rng(1).standard_normal((n, columns))
    B = PETSc.Mat().createDense((n, columns), array=numpy.asfortranarray(values), comm=PETSc.COMM_SELF)
    X = B.duplicate()
    ksp = solver_of(laplacian, "afsai", "cgfused")
    assert finepc.KSPCGFusedGetColumns(ksp) == ([], [])
    ksp.matSolve(B, X)
    its, reasons = finepc.KSPCGFusedGetColumns(ksp)
    assert len(its) == columns and reasons == [PETSc.KSP.ConvergedReason.CONVERGED_RTOL] * columns
    b, x = laplacian.createVecs()
    single = solver_of(laplacian, "afsai", "cgfused")
    for column in range(columns):
        b.setArray(values[:, column])
        single.solve(b, x)
        assert single.getIterationNumber() == its[column]
        assert numpy.allclose(X.getDenseArray()[:, column], x.getArray(), rtol=0, atol=1e-9)
    assert ksp.getIterationNumber() == max(its)
