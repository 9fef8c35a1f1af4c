"""Fine-grained preconditioners and solvers for PETSc, for programs that use petsc4py.

    import finepc
    finepc.load()
    ksp.setType("cg")
    ksp.getPC().setType("afsai")

Every setter and getter of the C library is here with its own name, for instance ``finepc.PCAFSAISetMaxSteps(pc, 30)``, and so are
its constants and enumerations. ``help(finepc.PCAFSAISetMaxSteps)`` shows what the manual page says, and
``print(finepc.manual("afsai"))`` shows the page of a type with all its options.
"""
from __future__ import annotations

from . import _api
from ._api import * # noqa: F403
from ._api import __all__ as _generated
from ._petsc import library_path, load
from ._try import try_matrix

__version__ = _api.__version__
__all__ = [*_generated, "library_path", "load", "manual", "try_matrix"]


def manual(name: str) -> str:
    """The manual page of a type of finepc, by its name or its constant: ``manual("afsai")``, ``manual("PCAFSAI")``."""
    for constant, page in _api.MANUAL_PAGES.items():
        if name in (constant, getattr(_api, constant)):
            return page
    docstring: str | None = getattr(getattr(_api, name), "__doc__", None) if name in _generated else None
    if not docstring:
        raise KeyError(f"finepc has no type and no function {name}; its types are "
                       f"{', '.join(getattr(_api, constant) for constant in _api.MANUAL_PAGES)}")
    return docstring
