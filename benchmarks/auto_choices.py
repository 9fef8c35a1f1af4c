#!/usr/bin/env python3
"""What -pc_type auto takes, beside the best of the candidates of its rules: a table of runs of finepc_bench, for
results/auto_choices.md.

    auto_choices.py run.json [more.json ..] -o results/auto_choices.md --command "finepc_bench ..."

A run has sets whose labels are auto or end with -auto, and sets of single candidates, whose options are those of a line in
src/pc/auto/auto_rules.txt. finepc_bench with -set_limit 0: with a limit it has a convergence test of its own, into which auto does
not look. Costs are counted as auto counts them, in iterations with jacobi, from the iterations and the costs of the rules, so that
they are the same on every machine. A solve that the recurrence has ended before the true residual was as small counts as well."""
import argparse
import json
import math
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from finepc_try import rules  # noqa: E402

USUAL_ROW = 7  # as in auto_rules.cxx
SOLVED = ("ok", "missed")


class Costs:
    """Of an iteration and a set-up, by the rules for a host or a GPU"""

    def __init__(self, backend):
        other = "!device" if backend == "cuda" else "device"
        self.lines = [line for line in rules.table()[0] if other not in line[2].split()]

    def of(self, options, row):
        """(name, iteration, set-up) of the candidate with these options, or None"""
        words = re.sub(r"-ksp_type \S+|-ksp_pc_side \S+", "", options).split()
        for name, text, _, iteration, set_up, growth, _ in self.lines:
            if text.split() == words:
                return name, float(iteration), float(set_up) * (max(row, 1) / USUAL_ROW) ** float(growth)
        return None

    def named(self, name):
        return next(float(line[3]) for line in self.lines if line[0] == name)


def found(pattern, view):
    return [match for line in view for match in re.findall(pattern, line)]


def read(paths):
    """system -> the results of all files, the rows and entries, and the first file's head"""
    systems, head = {}, None
    for path in paths:
        with open(path, encoding="utf-8") as f:
            run = json.load(f)
        head = head or run
        for system in run["systems"]:
            there = systems.setdefault(system["name"], {"rows": system["rows"], "nnz": system["nnz"], "results": []})
            there["results"] += system["results"]
    return systems, head


def line(name, system, costs):
    """The row of a system, and the ratios of its first and its next solve"""
    row = system["nnz"] / system["rows"]
    candidates, auto = [], None
    for result in system["results"]:
        if result["label"].split("-")[-1] == "auto":
            auto = result
        elif result["status"] in SOLVED and (cost := costs.of(result["options"], row)):
            first = cost[2] + cost[1] * result["iterations"]
            candidates.append((first, cost[0], cost[1] * result["iterations"], result["iterations"]))
    if not auto or auto["status"] not in SOLVED or not candidates:
        return None
    tried = [(who, int(its)) for who, its in found(r"tried: (\w+), .* the last one of (\d+) iterations", auto["view"])]
    taken = found(r"these options fix the choice: (.*)", auto["view"])[0].strip()
    work = float(found(r"cost as much as (\d+) iterations", auto["view"])[0])
    last = next((who, its) for who, its in tried if [who, taken] in [candidate[:2] for candidate in costs.lines])
    again = last[1] * costs.named(last[0])
    solves = int(found(r"since these nonzeros: (\d+) solves", auto["view"])[0])
    best = min(candidates)
    own = next((c[0] for c in candidates if c[1] == last[0]), None)
    first = work - (solves - 1) * again
    cells = [name, f"{system['rows']:,}", ", ".join(f"{who} {its}" for who, its in tried), f"{first:.0f}",
             f"{max(first - own, 0):.0f}" if own else "", f"{best[1]} {best[3]}", f"{best[0]:.0f}", f"{first / best[0]:.2f}",
             f"{again / best[2]:.2f}"]
    return cells, first / best[0], again / best[2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--command", required=True)
    arguments = parser.parse_args()
    systems, head = read(arguments.runs)
    costs = Costs(head["backend"])
    every = [line(re.sub(r".*/|\.petsc(\.gz)?$", "", name), system, costs) for name, system in systems.items()]
    rows = [row for row in every if row]
    geometric = math.exp(sum(math.log(ratio) for _, ratio, _ in rows) / len(rows))
    heads = ["system", "rows", "candidates with the iterations of each last run", "first solve", "of it lost", "best candidate",
             "its solve", "ratio", "ratio of the next solve"]
    where = (f"backend {head['backend']}, {head['ranks']} rank, PETSc {head['petsc']}, "
             f"commit {head['commit'].split('-')[0]}, {head['date']}")
    text = ["# What auto takes, and what the best of its candidates would have cost", "", f"{arguments.command}; {where}.", "",
            "Costs are counted in iterations with jacobi, set-ups included; what is lost is what the first solve took beyond the "
            "last candidate alone. The next solve has the set-up already.", "",
            "| " + " | ".join(heads) + " |", "|:--|--:|:--|--:|--:|:--|--:|--:|--:|"]
    text += ["| " + " | ".join(cells) + " |" for cells, _, _ in rows]
    text += ["", f"Of {len(rows)} systems the first solve is within 1.5 of the best on {sum(r <= 1.5 for _, r, _ in rows)}, the "
             f"next one within 1.15 on {sum(r <= 1.15 for _, _, r in rows)}; the geometric mean of the first ratios is "
             f"{geometric:.2f}.", ""]
    with open(arguments.output, "w", encoding="utf-8") as f:
        f.write("\n".join(text))


if __name__ == "__main__":
    main()
