"""Tries on one matrix which preconditioners and Krylov methods of finepc and PETSc are the fastest.

    import finepc_try
    result = finepc_try.try_matrix("A.mtx")
    print(result.winner.label, result.options)
"""
from .matrix import TryError
from .session import TryResult, try_matrix

__all__ = ["TryError", "TryResult", "try_matrix"]
