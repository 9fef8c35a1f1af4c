"""The command line of finepc-try."""
import argparse
import sys

from . import report
from .matrix import TryError
from .session import list_candidates, try_matrix

DESCRIPTION = """Tries on a matrix which preconditioners and solvers of finepc and of PETSc are the fastest, on the GPU where there
is one, and on the host elsewhere. Every row of the table is checked on the true residual: a wrong guess about the matrix costs
time, never a wrong answer."""


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="finepc-try", description=DESCRIPTION)
    parser.add_argument("matrix",
                        help="Matrix Market (.mtx) or PETSc's binary, with or without a right-hand side; .gz and .xz, too")
    parser.add_argument("--rhs", metavar="FILE", help="the right-hand side: PETSc's binary, Matrix Market, .npy, or numbers as "
                        "text; without one that of the matrix file is taken, or random numbers from a fixed seed")
    parser.add_argument("--backend", choices=("auto", "host", "cuda", "both"), default="auto",
                        help="where to solve; auto is the GPU where there is one, and both has the host beside it "
                        "(default: %(default)s)")
    parser.add_argument("--ranks", type=int, default=1, help="MPI ranks (default: %(default)s)")
    parser.add_argument("--rtol", type=float, default=1e-8,
                        help="true residual to reach, relative to the right-hand side (default: %(default)s)")
    parser.add_argument("--time-limit", type=float, default=60, metavar="SECONDS", help="for each candidate (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="NAMES",
                        help="candidates by label or type, separated by commas: afsai,gamg")
    parser.add_argument("--block-size", type=int, metavar="N", help="unknowns a point, instead of a guess")
    parser.add_argument("--output", default="finepc-try", metavar="FOLDER",
                        help="for the options, the JSON and the plot (default: %(default)s)")
    parser.add_argument("--with", dest="also", action="append", default=[], metavar="CANDIDATE",
                        help="one more candidate, \"label: -ksp_type cg -pc_type icc\"; may be given several times")
    parser.add_argument("--thorough", action="store_true", help="more settings of each type, which takes longer")
    parser.add_argument("--coordinates", metavar="FILE", help="coordinates of the points, a line or row for each, as text or .npy: "
                        "multigrid gets their rigid body modes")
    parser.add_argument("--list", action="store_true", help="only print what would be tried, and how long it can take")
    args = parser.parse_args(arguments)
    try:
        if args.list:
            print(list_candidates(args.matrix, backend=args.backend, ranks=args.ranks, time_limit=args.time_limit, only=args.only,
                                  block_size=args.block_size, also=args.also, thorough=args.thorough))
            return 0
        report.check_folder(args.output)
        result = try_matrix(args.matrix, args.rhs, backend=args.backend, ranks=args.ranks, rtol=args.rtol,
                            time_limit=args.time_limit, only=args.only, block_size=args.block_size, also=args.also,
                            thorough=args.thorough, coordinates=args.coordinates, progress=_print)
        print(result, flush=True)  # Whatever happens to the files, what was measured has been said.
        report.write_files(result, args.output, _print)
    except (TryError, OSError) as error:
        print(f"finepc-try: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nfinepc-try: interrupted", file=sys.stderr)
        return 130
    return 0 if result.winner else 1


def _print(text):
    print(text, end="", flush=True)
