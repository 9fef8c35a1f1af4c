"""Preconditioners in Python within gmresfused, which cannot know what they do."""
import numpy
from conftest import solver_of
from petsc4py import PETSc


class Fixed:
    """A diagonal, the same each time"""

    def apply(self, pc, x, y):
        x.copy(y)
        y.scale(0.25)


class Changing(Fixed):
    """Another scale each time, as a solver inside would have"""

    def __init__(self):
        self.calls = 0

    def apply(self, pc, x, y):
        self.calls += 1
        x.copy(y)
        y.scale(1 + 0.5 * (self.calls % 3))


def solve(A, context):
    ksp = solver_of(A, "python", "gmresfused")
    ksp.getPC().setPythonContext(context)
    b, x = A.createVecs()
    b.setArray(numpy.random.default_rng(7).standard_normal(b.getSize()))
    ksp.solve(b, x)
    return ksp, (A * x - b).norm() / b.norm()


def view_of(ksp, path):
    viewer = PETSc.Viewer().createASCII(str(path), comm=ksp.getComm())
    ksp.view(viewer)
    viewer.destroy()
    return path.read_text()


def test_pcpython_may_change(laplacian, tmp_path):
    ksp, residual = solve(laplacian, Fixed())
    assert residual <= 1.02e-8
    text = view_of(ksp, tmp_path / "fixed")
    assert "the preconditioner may change by itself" in text
    assert "missed the true residual" not in text
    ksp, residual = solve(laplacian, Changing())
    assert residual <= 1.02e-8
    assert "kept, since a cycle without them missed the true residual" in view_of(ksp, tmp_path / "changing")
