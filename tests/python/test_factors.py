"""Factors and hierarchies are matrices of petsc4py that belong to the caller alone, and are what the preconditioner applies."""
import gc

import numpy
import pytest
from conftest import dense, solver_of
from petsc4py import PETSc

import finepc


def set_up(A, kind, **options):
    pc = PETSc.PC().create(PETSc.COMM_SELF)
    pc.setOperators(A)
    pc.setType(kind)
    for name, value in options.items():
        getattr(finepc, name)(pc, value)
    pc.setUp()
    return pc


def applied(pc, A):
    """The matrix that an application is, column by column"""
    x, y = A.createVecs()
    columns = []
    for column in range(A.getSize()[0]):
        x.set(0)
        x.setValue(column, 1)
        x.assemble()
        pc.apply(x, y)
        columns.append(y.getArray().copy())
    return numpy.array(columns).T


@pytest.mark.parametrize("kind", ["afsai", "sfsai"])
def test_fsai(laplacian, kind):
    double = {f"PC{kind.upper()}Set{what}Precision": finepc.FINEPC_DOUBLE for what in ("Factor", "Setup")}
    pc = set_up(laplacian, kind, **double)
    G, Gt = getattr(finepc, f"PC{kind.upper()}GetFactors")(pc)
    assert G.getRefCount() == Gt.getRefCount() == 1
    g = dense(G)
    assert numpy.array_equal(dense(Gt), g.T) and numpy.array_equal(numpy.tril(g), g)
    assert numpy.allclose(numpy.diag(g @ dense(laplacian) @ g.T), 1, atol=1e-12)
    assert numpy.allclose(applied(pc, laplacian), g.T @ g, atol=1e-13)
    pc.destroy()
    assert G.norm() == pytest.approx(numpy.linalg.norm(g)) # the factor outlives its preconditioner


def test_bisai(laplacian):
    pc = set_up(laplacian, "bisai", PCBISAISetFactorPrecision=finepc.FINEPC_DOUBLE)
    lower, upper = (dense(matrix) for matrix in finepc.PCBISAIGetFactors(pc))
    assert numpy.array_equal(numpy.tril(lower), lower) and numpy.allclose(numpy.diag(lower), 1)
    assert numpy.array_equal(numpy.triu(upper), upper)
    assert numpy.allclose(applied(pc, laplacian), upper @ lower, atol=1e-13)


def test_hierarchy(laplacian):
    pc = set_up(laplacian, "cmatch", PCCMATCHSetCoarseSize=4, PCCMATCHSetPrecision="double")
    operators, prolongators = finepc.PCCMATCHGetHierarchy(pc)
    assert len(operators) == len(prolongators) + 1 > 2
    assert all(matrix.getRefCount() == 1 for matrix in operators + prolongators)
    assert numpy.allclose(dense(operators[0]), dense(laplacian), atol=1e-13)
    for level, P in enumerate(prolongators):
        p = dense(P)
        galerkin = p.T @ dense(operators[level]) @ p
        assert numpy.allclose(dense(operators[level + 1]), galerkin, atol=1e-12)


@pytest.mark.parametrize("kind", ["sfsai", "afsai"])
def test_pattern_is_borrowed(laplacian, kind):
    give, get = (getattr(finepc, f"PC{kind.upper()}{verb}Pattern") for verb in ("Set", "Get"))
    pattern = laplacian.duplicate()
    pc = PETSc.PC().create(PETSc.COMM_SELF)
    pc.setOperators(laplacian)
    pc.setType(kind)
    assert get(pc) is None
    give(pc, pattern)
    assert pattern.getRefCount() == 2
    got = get(pc)
    assert got == pattern and pattern.getRefCount() == 3
    del got
    assert pattern.getRefCount() == 2
    give(pc, None)
    assert pattern.getRefCount() == 1 and get(pc) is None


def test_memory_is_flat(laplacian):
    """What Python has let go of is gone."""
    factors, levels = set_up(laplacian, "afsai"), set_up(laplacian, "cmatch", PCCMATCHSetCoarseSize=4)

    def bytes_after(calls):
        for _ in range(calls):
            finepc.PCAFSAIGetFactors(factors)
            finepc.PCCMATCHGetHierarchy(levels)
        gc.collect()
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * 4096

    bytes_after(200)
    before = bytes_after(200)
    # A factor of this matrix alone has more than 10 kB, so that 1000 lost ones would be 10 MB.
    assert bytes_after(1000) - before < 5e6


def test_bytes_and_density(laplacian):
    pc = set_up(laplacian, "afsai")
    G, _ = finepc.PCAFSAIGetFactors(pc)
    used = G.getInfo()["nz_used"]
    assert finepc.PCFinePCGetDensity(pc) == pytest.approx(used / laplacian.getInfo()["nz_used"])
    assert finepc.PCFinePCGetApplyBytes(pc) > 2 * 8 * used # two factors, 4 bytes a value and 4 an index


def test_solver(laplacian):
    ksp = solver_of(laplacian, "rrb", "rrbcg")
    finepc.PCRRBSetNx(ksp.getPC(), 12)
    x, b = laplacian.createVecs()
    b.set(1)
    ksp.solve(b, x)
    assert (b - laplacian * x).norm() < 1e-7 * b.norm()
