#!/usr/bin/env python3
"""Programs of PETSc, as they are, with afsai and sfsai on several ranks: at most 5 % more iterations than on one. A DMDA numbers
its points otherwise on several ranks, which makes another factor, so that where there are more than that, the factor that
reaches all ranks is made on as many ranks, and the factor with one hop may take 5 % more than that one. With cmatch, which
takes few iterations, each solve may take one more than 5 %.

    programs_on_ranks.py --programs FOLDER --library libfinepc.so [--device] [--table FILE.md] [PROGRAM ..]

FOLDER has the programs as petsc_ksp_ex45 and so on. The iterations are those of all linear solves of a run. Each run must end well:
exit code 0, no error in what it prints, convergence, the preconditioner that was asked for, and no option left unused. --table
writes a table, in which block-local factors are compared, too; --device runs on GPUs, which ranks may share."""
import argparse
import datetime
import os
import re
import subprocess
import sys

BOUND = 1.05
FACTORS, MULTIGRID, BESIDE = ["afsai", "sfsai"], ["cmatch"], "gamg"
# Program, options, its numbers of ranks, and types. ksp_ex56 takes 1, 8, 27 .. ranks; on 2 one of them has all rows.
PROGRAMS = [
    ("ksp_ex45", "-da_grid_x 33 -da_grid_y 29 -da_grid_z 25", (2, 4), FACTORS + MULTIGRID),
    ("ksp_ex50", "-da_grid_x 101 -da_grid_y 90", (2, 4), FACTORS + MULTIGRID),
    ("ksp_ex29", "-da_grid_x 101 -da_grid_y 90 -bc_type neumann", (2, 4), MULTIGRID),
    ("ksp_ex56", "-ne 11", (2, 8), FACTORS),
    ("snes_ex5", "-da_grid_x 65 -da_grid_y 65 -snes_converged_reason", (2, 4), FACTORS + MULTIGRID),
]
# How the types of matrices and vectors are asked for: ksp_ex56 has no DM and takes its vectors from its matrix, so that it reads no
# -vec_type. The host's are asked for in the same way, so that a run there notices options that a program does not read.
TYPES_OF_DM, TYPES = "-dm_mat_type {mat} -dm_vec_type {vec}", {"ksp_ex56": "-mat_type {mat}"}
HOST, DEVICE = {"mat": "aij", "vec": "standard"}, {"mat": "aijcusparse", "vec": "cuda"}
# Options of a type, with @ for -pc_TYPE_
BLOCK_LOCAL, ONE_HOP, ALL_RANKS = "@overlap 0", "@overlap 1", "@overlap 1000 @halo_layers 10000"
WRONG = r"PETSC ERROR|did not converge|Segmentation|Caught signal|DIVERGED"


class Failed(Exception):
    pass


def run(options, program, arguments, method, reach, ranks):
    """The iterations of each linear solve."""
    types = TYPES.get(program, TYPES_OF_DM).format(**(DEVICE if options.device else HOST))
    command = [options.mpiexec, "-n", str(ranks), f"{options.programs}/petsc_{program}", "-dll_append", options.library,
               *f"{arguments} -ksp_type cg -ksp_converged_reason -pc_type {method}".split(),
               *reach.replace("@", f"-pc_{method}_").split(),
               *f"-ksp_view -options_left {types}".split()]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=300)
    solves = [int(n) for n in re.findall(r"Linear solve converged due to \w+ iterations (\d+)", done.stdout)]
    memory = "CUDA" if options.device else "host"
    for what, wrong in (
        (f"exit code {done.returncode}", done.returncode),
        ("an error, or no convergence", re.search(WRONG, done.stdout)),
        ("no linear solve", not solves),
        (f"not {method}", f"type: {method}" not in done.stdout),
        ("not in the memory asked for", method != BESIDE and f"backend {memory}" not in done.stdout),
        ("an option was not used", "no unused options" not in done.stdout),
    ):
        if wrong:
            raise Failed(f"{what}: {' '.join(command)}\n{done.stdout}")
    return solves


def text_of(solves):
    return str(sum(solves)) + (f" ({' + '.join(map(str, solves))})" if len(solves) > 1 else "")


def case(options, program, arguments, method, numbers):
    """A row of the table, and whether all is well."""
    multigrid = method in MULTIGRID
    reaches = ("", "@reach local", "") if multigrid else (ONE_HOP, BLOCK_LOCAL, ALL_RANKS)
    one = run(options, program, arguments, method, reaches[0], 1)
    cells, good = [], True
    for ranks in numbers:
        several = run(options, program, arguments, method, reaches[0], ranks)
        ratio = sum(several) / sum(one)
        few = sum(several) <= BOUND * sum(one) + (len(one) if multigrid else 0)
        if not few and not multigrid:
            few = sum(several) <= BOUND * sum(run(options, program, arguments, method, reaches[2], ranks))
        good = good and few
        cells.append(f"{ranks} | {text_of(several)} | {ratio:.3f}")
        if options.table:
            local, whole = (sum(run(options, program, arguments, method, reach, ranks)) for reach in reaches[1:])
            gamg = sum(run(options, program, arguments, BESIDE, "", ranks))
            cells[-1] += f" | {local} | {local / sum(one):.3f} | {whole} | {gamg}"
    rows = [f"| {program} {arguments} | {method} | {text_of(one)} | {cell} |" for cell in cells]
    print("\n".join(f"{'ok' if good else 'FAILED: too many'}: {row}" for row in rows), flush=True)
    return rows, good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--device", action="store_true")
    parser.add_argument("--table")
    parser.add_argument("--made-with", default="", help="for the table: machine, driver, commit")
    parser.add_argument("program", nargs="*")
    options = parser.parse_args()

    rows, good, found = [], True, False
    for program, arguments, numbers, methods in PROGRAMS:
        if options.program and program not in options.program:
            continue
        if not os.access(f"{options.programs}/petsc_{program}", os.X_OK):
            print(f"skipped: petsc_{program} is not there")
            continue
        found = True
        for method in methods:
            try:
                more, well = case(options, program, arguments, method, numbers)
                rows += more
                good = good and well
            except (Failed, subprocess.TimeoutExpired) as error:
                print("FAILED:", error, flush=True)
                good = False
    if options.table:
        lines = [
            "# Programs of PETSc on several ranks, with a factor that reaches other ranks", "",
            "Made by programs_on_ranks.py: each program as it is, with `-dll_append libfinepc.so -ksp_type cg -pc_type TYPE",
            "-pc_TYPE_overlap 1` and the default layers, cmatch with its defaults; iterations of all linear solves together, and",
            "in brackets of each. The columns \"block-local\" have `-pc_TYPE_overlap 0`, or `-pc_cmatch_reach local`. A DMDA, and",
            "ksp_ex56, number their points otherwise on several ranks, and with another order of the unknowns there is another",
            "factor: \"all ranks reached\" is that of a factor that reaches all ranks, which differs from one rank's by the order",
            "alone. ksp_ex56 takes 1, 8, 27 .. ranks; on 2 one of them has all rows. The column \"gamg\" has PETSc's PCGAMG with",
            "its defaults on as many ranks.",
            "", f"{'cuda' if options.device else 'host'}, {options.made_with}, {datetime.date.today()}", "",
            "| program | type | one rank | ranks | iterations | ratio | block-local | ratio | all ranks reached | gamg |",
            "|:--|:--|--:|--:|--:|--:|--:|--:|--:|--:|", *rows]
        with open(options.table, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    if not found:
        print("FAILED: no program of that name")
    return 0 if good and found else 1


os.environ.setdefault("OMPI_MCA_rmaps_base_oversubscribe", "1")
sys.exit(main())
