#!/usr/bin/env python3
"""The same partition gives the same bits in every run: finepc_fingerprint runs as often as is asked for on each number of ranks,
and the hashes that it prints, of the bits of all ranks, must not differ.

    same_bits.py --fingerprint finepc_fingerprint --library libfinepc.so --sets FILE --systems A,B [--ranks 2,4] [--runs 2]

boxes:@:SYSTEM is a system with a box for each rank. Different numbers of ranks must have different bits: otherwise the hashes say
nothing about the ranks. --also OPTIONS is for the last run on each number of ranks alone, with which a test has a run differ."""
import argparse
import os
import subprocess
import sys

BOXES = {1: "1x1x1", 2: "2x1x1", 4: "2x2x1", 8: "2x2x2"}


def run(options, ranks, also):
    """The lines of all sets, of which each must have converged."""
    systems = options.systems.replace("@", BOXES.get(ranks, f"{ranks}x1x1"))
    command = [options.mpiexec, "-n", str(ranks), options.fingerprint, "-dll_append", options.library, "-backend", options.backend,
               "-systems", systems, "-sets", options.sets, *also.split()]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=280)
    lines = [line for line in done.stdout.splitlines() if line.startswith("| ")][1:]
    if done.returncode or not lines or any("| CONVERGED_" not in line for line in lines):
        raise SystemExit(f"FAILED: exit code {done.returncode}: {' '.join(command)}\n{done.stdout}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("fingerprint", "library", "sets", "systems"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--backend", default="host")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--also", default="")
    options = parser.parse_args()
    good, seen = True, []  # of each set, the bits of the solution by number of ranks
    for ranks in map(int, options.ranks.split(",")):
        first = run(options, ranks, "")
        seen = seen or [{} for _ in first]
        for repeat in range(1, options.runs):
            again = run(options, ranks, options.also if repeat == options.runs - 1 else "")
            for old, new in zip(first, again, strict=True):
                if old != new:
                    good = False
                    print(f"FAILED: other bits in run {repeat + 1} on {ranks} ranks:\n  {old}\n  {new}")
        for line, others in zip(first, seen, strict=True):
            solution = line.split(" | ")[-1]
            for other, bits in others.items():
                if bits == solution:
                    good = False
                    print(f"FAILED: {ranks} and {other} ranks have the same bits: {line}")
            others[ranks] = solution
        print(f"{'ok' if good else 'FAILED'}: {len(first)} sets on {ranks} ranks, {options.runs} runs", flush=True)
        print("\n".join(first), flush=True)
    return 0 if good else 1


os.environ.setdefault("OMPI_MCA_rmaps_base_oversubscribe", "1")
sys.exit(main())
