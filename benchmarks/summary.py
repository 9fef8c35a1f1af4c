#!/usr/bin/env python3
"""Totals of a benchmark run, a row per option set: how far each is from the best set of each system, over all systems.

    summary.py results.json [-o summary.md]

With --density, instead: nnz(G)/nnz(A) and the iterations."""
import argparse
import json
import math
import sys

from made_with import made_with


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json")
    parser.add_argument("-o", "--output")
    parser.add_argument("--density", action="store_true")
    args = parser.parse_args()
    report = json.load(open(args.json))
    systems = [system["name"] for system in report["systems"]]
    solved = {}  # (label, system) -> (seconds, iterations)
    density = {}  # (label, system) -> nnz(G)/nnz(A)
    labels = []
    for system in report["systems"]:
        for result in system["results"]:
            if result["label"] not in labels:
                labels.append(result["label"])
            density[result["label"], system["name"]] = result["density"]
            if result["status"] == "ok":
                solved[result["label"], system["name"]] = (result["total_s"], result["iterations"])
    best = {name: min((t for (_, s), (t, _) in solved.items() if s == name), default=None) for name in systems}

    head = f"{made_with(report)}."
    if args.density:
        lines = [f"nnz(G)/nnz(A), iterations in parentheses; {head}", ""]
        lines += ["| set | " + " | ".join(systems) + " |", "|:--|" + "--:|" * len(systems)]
    else:
        lines = [f"Set-up and solve in ms, iterations in parentheses; {head}"]
        lines += ["The first column is the geometric mean, over the systems, of the time relative to the best set.", ""]
        lines += ["| set | mean | " + " | ".join(systems) + " |", "|:--|--:|" + "--:|" * len(systems)]
    for label in labels:
        cells = [solved.get((label, name)) for name in systems]
        if args.density:
            densities = [f"{density.get((label, name), 0):.2f}" for name in systems]
            iterations = [f"({cell[1]})" if cell else "(missed)" for cell in cells]
            lines.append(f"| {label} | " + " | ".join(map(" ".join, zip(densities, iterations))) + " |")
            continue
        logs = [math.log(cell[0] / best[name]) for cell, name in zip(cells, systems) if cell]
        mean = f"{math.exp(sum(logs) / len(logs)):.2f}" if len(logs) == len(systems) else ""
        times = [f"{1e3 * cell[0]:.1f} ({cell[1]})" if cell else "missed" for cell in cells]
        lines.append(f"| {label} | {mean} | " + " | ".join(times) + " |")
    text = "\n".join(lines) + "\n"
    if args.output:
        open(args.output, "w").write(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
