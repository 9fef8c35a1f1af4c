#!/usr/bin/env python3
"""Iterations from runs of finepc_bench that may grow no further, on several ranks, or that must be a paper's. Ends with an error
unless N cases were found and all are as they must be:

    counts.py --expect N cmatch RUN.json ..    cmatch takes at most one iteration more than the prototype that it was designed with
    counts.py --expect N overlap RUN.json ..   a factor that reaches other ranks takes at most 1.05 times the iterations of one
                                               rank, or 2 more where these are fewer than 100; one run is on one rank
    counts.py --expect N paper RUN.json ..     exactly the iterations that docs/tables/papers.tsv has of the papers"""
import argparse
import csv
import os
import re

import keep

# Iterations of the prototype with slabs and with boxes, by number of ranks where these differ; on one rank where it has no others.
PROTOTYPE = {
    "poisson3d7:64": 14, "jumps:64": 15, "jumps_random": 15, "poisson2d5:1023": {2: 24, 4: 25}, "aniso3d:511x511x1:1e3:1e-13": 26,
}


def cmatch(reports):
    """Words about each case, whether it is as it must be."""
    for report in reports:
        for row in report.rows:
            system = re.sub(r"^boxes:[0-9x]+:([0-9x]+:)?", "", row["system"])
            most = PROTOTYPE[system]
            most = 1 + (most[report.ranks] if isinstance(most, dict) else most)
            yield (f"{row['system']} on {report.ranks} ranks: {row['iterations']} iterations, at most {most}",
                   row["status"] == "ok" and row["iterations"] <= most)


def overlap(reports):
    alone = {}  # by system and method
    for report in reports:
        if report.ranks == 1:
            alone.update({(row["system"], row["set"].split("-")[0]): row["iterations"] for row in report.rows})
    for report in reports:
        for row in report.rows if report.ranks > 1 else []:
            one = alone[row["system"], row["set"].split("-")[0]]
            most = max(1.05 * one, one + 2 if one < 100 else 0)
            # missed: rounding keeps the true residual above that of the method
            yield (f"{row['system']}, {row['set']} on {report.ranks} ranks: {row['iterations']} iterations, on one {one}",
                   row["status"] in ("ok", "missed") and row["iterations"] <= most)


def paper(reports):
    path = f"{os.path.dirname(os.path.abspath(__file__))}/../docs/tables/papers.tsv"
    with open(path, encoding="utf-8") as file:
        lines = [line for line in file if not line.startswith("#")]
    rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    rows = [row for row in rows if row[5].endswith(" iterations") and row[4].isdigit()]
    theirs = {tuple(row[5].split()[1:3]): int(row[4]) for row in rows}
    for report in reports:
        for row in report.rows:
            count = theirs[row["system"], row["set"]]
            words = f"{row['system']}, {row['set']}: {row['iterations']} iterations, the paper has {count}"
            yield words, row["iterations"] == count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("cmatch", "overlap", "paper"))
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--expect", type=int, required=True)
    options = parser.parse_args()
    cases = list(globals()[options.what]([keep.read(path) for path in options.runs]))
    for words, good in cases:
        print(words if good else f"FAILED: {words}")
    if len(cases) != options.expect or not all(good for _, good in cases):
        raise SystemExit(f"counts: {len(cases)} cases of {options.expect}, {sum(not good for _, good in cases)} beyond")


if __name__ == "__main__":
    main()
