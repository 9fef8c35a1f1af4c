"""finepc.try_matrix() hands over what finepc_try takes: paths and matrices of scipy, and arrays."""
import sys
import types

import numpy
import pytest
import scipy.sparse
from conftest import dense
from petsc4py import PETSc

import finepc


@pytest.fixture
def handed(monkeypatch):
    """What the module finepc_try has been called with"""
    module = types.ModuleType("finepc_try")
    module.try_matrix = lambda matrix, rhs=None, **options: (matrix, rhs, options)
    monkeypatch.setitem(sys.modules, "finepc_try", module)


@pytest.mark.parametrize("kind", ["seqaij", "seqbaij", "seqdense"])
def test_matrix_of_petsc4py(handed, laplacian, kind):
    A, b, options = finepc.try_matrix(laplacian.convert(kind, PETSc.Mat()), rtol=1e-6, only=["afsai"])
    assert scipy.sparse.issparse(A) and numpy.array_equal(A.toarray(), dense(laplacian))
    assert b is None and options == {"rtol": 1e-6, "only": ["afsai"]}


def test_right_hand_side(handed, laplacian):
    _, rhs = laplacian.createVecs()
    rhs.setRandom()
    _, b, _ = finepc.try_matrix(laplacian, rhs)
    assert isinstance(b, numpy.ndarray) and numpy.array_equal(b, rhs.getArray())


def test_others_are_handed_over(handed):
    A = scipy.sparse.eye(3).tocsr()
    assert finepc.try_matrix(A)[0] is A and finepc.try_matrix("A.mtx")[0] == "A.mtx"


def test_without_the_module(monkeypatch, laplacian):
    monkeypatch.setitem(sys.modules, "finepc_try", None)
    with pytest.raises(ImportError, match="behind finepc-try, cannot be imported"):
        finepc.try_matrix(laplacian)
    monkeypatch.setitem(sys.modules, "finepc_try.command", None)
    with pytest.raises(SystemExit, match=r"finepc-try: .*\[try\]"):
        finepc._try.main()
