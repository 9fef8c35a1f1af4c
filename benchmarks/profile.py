#!/usr/bin/env python3
"""Where the time of cmatch's kernels goes, level by level, from what Nsight Compute has measured.

usage: profile.py FILE.csv [..]

The files come from a solve with cgfused and cmatch, kernels one after the other at the clocks of the chip:

    ncu --csv --page raw --print-units base --clock-control none --metrics gpu__time_duration.sum --log-file FILE.csv \\
        finepc_bench -repeats 0 ..

Of the first set-up in a file, and of the first whole cycle with the conjugate gradient method around it, a table in Markdown tells the
kernels and their microseconds for each level. What a set-up takes beyond the sum of its kernels is the host: launches, allocations
and numbers that it reads before it goes on.
"""
import csv
import pathlib
import re
import sys

SOURCES = pathlib.Path(__file__).resolve().parent.parent / "cuda" / "pc" / "cmatch"
PHASES = {
    "cmatch": "copy, diagonals",
    "cmatch_aggregate": "aggregates",
    "cmatch_galerkin": "P, R, products",
    "cmatch_coarsest": "inverse",
    "cmatch_cycle": "cycle",
}


def kernels_of_sources():
    """The phase of each kernel by its name."""
    phases = {}
    for file in SOURCES.glob("*.cu"):
        for name in re.findall(r"__global__[^;{]*?\b([A-Z]\w+)\s*\((?!kBlock|\d)", file.read_text()):
            phases[name] = PHASES.get(file.stem, file.stem)
    return phases


def launches(name):
    """Kernel names and microseconds, in the order of the launches."""
    with open(name, newline="") as file:
        lines = [line for line in file if line.startswith('"')]
    for row in csv.DictReader(lines):
        if not row["ID"].isdigit():
            continue  # the units
        kernel = row["Kernel Name"]
        base = "CUB" if "cub::" in kernel else re.split(r"[<(]", kernel.replace("(anonymous namespace)::", "").replace("void ", ""))[0]
        yield base.split("::")[-1], float(row["gpu__time_duration.sum"].replace(",", "")) / 1e3


def add(table, level, column, microseconds):
    cell = table.setdefault(level, {}).setdefault(column, [0, 0.0])
    cell[0] += 1
    cell[1] += microseconds


def show(title, table, rows):
    columns = []
    for cells in table.values():
        columns += [column for column in cells if column not in columns]
    print(f"\n{title}\n")
    print("| level | " + " | ".join(columns) + " | all |\n|:--|" + "--:|" * (len(columns) + 1))
    total = {}
    for level in rows:
        cells = table.get(level, {})
        for column, (count, microseconds) in cells.items():
            add_to = total.setdefault(column, [0, 0.0])
            add_to[0] += count
            add_to[1] += microseconds
    for level, cells in [(level, table.get(level, {})) for level in rows] + [("all", total)]:
        shown = [f"{cells[c][1]:.0f} ({cells[c][0]})" if c in cells else "" for c in columns]
        count, microseconds = (sum(cell[k] for cell in cells.values()) for k in (0, 1))
        print(f"| {level} | " + " | ".join(shown) + f" | {microseconds:.0f} ({count}) |")


def profile(name):
    phases = kernels_of_sources()
    setup, cycle = {}, {}
    level, part, cycles, levels = 0, None, 0, 0
    for kernel, microseconds in launches(name):
        phase = phases.get(kernel, "sums of CUB" if kernel == "CUB" else kernel)
        if kernel == "CheckRows" and part is None:
            part = "set-up"
        if kernel == "BeginCycle":
            cycles += 1
            part, level = "cycle", 0
        if part == "set-up":
            add(setup, "coarsest" if phase == "inverse" else level, phase, microseconds)
            if kernel == "CompleteRows":  # ends the operator of a level
                level += 1
                levels = level
        elif part == "cycle" and cycles == 1:
            if phase not in ("cycle", "inverse"):  # the conjugate gradient method, and the product with A
                add(cycle, "outside", kernel, microseconds)
                continue
            if kernel == "Prolongate":
                level -= 1
            add(cycle, level, kernel, microseconds)
            if kernel == "Restrict":
                level += 1
        elif cycles > 1:
            break
    print(f"\n## {pathlib.Path(name).stem}")
    if not setup or not cycle:
        sys.exit(f"profile.py: {name} has no set-up of cmatch, or no whole cycle")
    # What comes after the operator of level k is the coarsening of level k, so that its columns are those of level k.
    named = {}
    for key, cells in setup.items():
        named["coarsest" if key == "coarsest" else "finest operator" if key == 0 else f"{key - 1} to {key}"] = cells
    order = ["finest operator"] + [f"{k} to {k + 1}" for k in range(levels)] + ["coarsest"]
    show("Set-up: microseconds (kernels)", named, [row for row in order if row in named])
    show("An iteration of cgfused: microseconds (kernels)", cycle, sorted(k for k in cycle if k != "outside") + ["outside"])


def main():
    names = sys.argv[1:]
    if not names or names[0].startswith("-"):
        sys.exit(__doc__)
    print("Microseconds of kernels that run one after the other, by Nsight Compute.")
    for name in names:
        profile(name)


main()
