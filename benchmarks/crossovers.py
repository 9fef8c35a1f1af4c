#!/usr/bin/env python3
"""Which solver has the least total time for one set-up and a number of right-hand sides, from JSON files of finepc_bench.

usage: crossovers.py FILE.json [..]

Prints a table in Markdown: the warm set-up, a warm first solve and further solves with the same KSP, in ms, of the fastest set of
each system, then from how many right-hand sides on each set is the fastest.
"""
import json
import sys

from made_with import machine

COUNTS = (1, 2, 4, 8, 16, 64, 256)


def again(result):
    """Seconds of a further solve, which without one measured are those of the first."""
    return min((run["solve_again_s"] for run in result["warm"] if run["solve_again_s"]), default=result["solve_s"])


def main():
    names = sys.argv[1:]
    if not names or names[0].startswith("-"):
        sys.exit(__doc__)
    files = [json.load(open(name)) for name in names]
    first = files[0]
    print(f"{machine(first)}, commit {first['commit']}, {first['date']}; "
          f"true residual {first['true_rtol']:g}, ms.\n")
    print("| system | " + " | ".join(f"{count} right-hand sides" if count > 1 else "1 right-hand side" for count in COUNTS) +
          " | fastest from .. right-hand sides on |")
    print("|:--|" + ":--|" * (len(COUNTS) + 1))
    for file in files:
        for system in file["systems"]:
            sets = [(r["label"], 1e3 * (r["setup_s"] + r["solve_s"]), 1e3 * again(r)) for r in system["results"]
                    if r["status"] == "ok"]
            best = lambda count: min(sets, key=lambda s: s[1] + (count - 1) * s[2])
            cells = []
            for count in COUNTS:
                label, first_solve, solve = best(count)
                cells.append(f"{label} {first_solve + (count - 1) * solve:.1f}")
            changes, last = [], None
            for count in range(1, 1001):
                label = best(count)[0]
                if label != last:
                    changes.append(f"{label} {count}")
                last = label
            print(f"| {system['name']} | " + " | ".join(cells) + " | " + ", ".join(changes) + " |")


main()
