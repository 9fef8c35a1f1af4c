#!/usr/bin/env python3
"""A call of MPI that fails on one rank ends a program on all ranks with an error, and none of them waits for ever. The program is
PETSc's tutorial ex2 as it is, with factors that reach other ranks; failing_mpi.c has the calls fail.

    exchange_test.py --program petsc_ksp_ex2 --library libfinepc.so --preload libfailing_mpi.so [--all]

With --all each call of the set-up and the first ones of the solve fail in turns, for which an hour may be too short."""
import argparse
import os
import re
import subprocess
import sys
import time

FAILING_RANK, LIMIT = 1, 40
# The ranks and the options of a solve, and of the calls of each kind that it makes the numbers of a few that fail: in the gathering
# of rows, in the connection of the factors, in an application, and with cgfused in the sums of an iteration.
COMMANDS = (
    (3, "-pc_type afsai -pc_afsai_overlap 1",
     {"MPI_Irecv": (1, 9, 16), "MPI_Isend": (4,), "MPI_Waitall": (2, 26), "MPI_Recv_init": (1,), "MPI_Startall": (3,),
      "MPI_Allreduce": (1, 20)}),
    (3, "-ksp_type cgfused -pc_type sfsai -pc_sfsai_overlap 1",
     {"MPI_Irecv": (2, 9), "MPI_Isend": (4,), "MPI_Waitall": (3,), "MPI_Recv_init": (1,), "MPI_Startall": (3,),
      "MPI_Allreduce": (2, 30)}),
    (3, "-pc_type cmatch -pc_cmatch_coarse_size 5 -pc_cmatch_gather_rows 1 -pc_cmatch_gather_ranks 1",
     {"MPI_Allgather": (1,), "MPI_Allreduce": (1, 5), "MPI_Irecv": (2, 7), "MPI_Isend": (5,), "MPI_Waitall": (3,)}),
    # the first eight ranks give their rows to one, so that two are left
    (9, "-pc_type cmatch -pc_cmatch_coarse_size 5 -pc_cmatch_gather_rows 0 -pc_cmatch_gather_ranks 30", {"MPI_Comm_split": (1,)}),
)


def run(options, ranks, command_line, function, number):
    """Whether it ended in time, its exit code, what it printed, and the seconds that it took."""
    command = [options.mpiexec, "-n", str(ranks), "-x", f"LD_PRELOAD={options.preload}", "-x",
               f"FINEPC_FAIL={FAILING_RANK} {function} {number}", options.program, "-dll_append", options.library,
               "-m", "12", "-n", "12", *command_line.split()]
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                               start_new_session=True)
    try:
        text, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.terminate()  # mpiexec ends the ranks
        text, _ = process.communicate()
        return False, None, text, time.monotonic() - begin
    return True, process.returncode, text, time.monotonic() - begin


def check(options, ranks, command_line, function, number):
    in_time, code, text, seconds = run(options, ranks, command_line, function, number)
    reported = re.findall(r"PETSC ERROR: (MPI error[^\n]*|An exchange with other ranks failed in the set-up)", text)
    good = in_time and code != 0 and reported
    what = "ends" if in_time else f"does not end within {LIMIT} s"
    print(f"{'ok' if good else 'FAILED'}: {command_line}: call {number} of {function}: {what}, {seconds:.1f} s, {reported[:2]}",
          flush=True)
    if not good:
        print(text)
    return bool(good)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("program", "library", "preload"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    good = True
    for *solve, cases in COMMANDS:
        in_time, code, text, _ = run(options, *solve, "none", 0)  # all goes well
        made = {function: int(calls) for calls, function in re.findall(r"finepc made (\d+) calls of (\w+)", text)}
        if not in_time or code or not made:
            print(f"FAILED: without a failure, exit code {code}\n{text}")
            return 1
        for function, numbers in cases.items():
            if made.get(function, 0) < max(numbers):
                print(f"FAILED: {solve[1]}: there are but {made.get(function, 0)} calls of {function}")
                return 1
            for number in range(1, made[function] + 1) if options.all else numbers:
                good = check(options, *solve, function, number) and good
    return 0 if good else 1


os.environ.setdefault("OMPI_MCA_rmaps_base_oversubscribe", "1")
sys.exit(main())
