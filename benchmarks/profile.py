#!/usr/bin/env python3
"""Where the time of cmatch goes, level by level, from the kernels that finepc_timeline has recorded.

usage: profile.py FILE.csv [..]

The files come from runs of finepc_bench with cgfused and cmatch on one system each:

    CUDA_INJECTION64_PATH=lib/libfinepc_timeline.so FINEPC_TIMELINE=FILE.csv finepc_bench -repeats 3 ..

Of the last set-up in a file, and of the median whole iteration of cgfused, tables in Markdown tell for each level the
microseconds of its kernels, their number, and the microseconds from the first kernel of the level to that of the next one: the
difference is that of the host, which launches, allocates, and reads numbers before it goes on.
"""
import pathlib
import re
import sys

SOURCES = pathlib.Path(__file__).resolve().parent.parent / "cuda" / "pc" / "cmatch"
PHASES = {
    "cmatch": "copy, diagonals",
    "cmatch_levels": "copy, diagonals",
    "cmatch_aggregate": "aggregates",
    "cmatch_galerkin": "P, R, products",
    "cmatch_coarsest": "inverse",
    "cmatch_cycle": "cycle",
    "cmatch_product": "P, R, products",
    "cmatch_nodes": "copy, diagonals",
    "cmatch_nodes_smoother": "copy, diagonals",
    "cmatch_nodes_pattern": "P, R, products",
    "cmatch_nodes_prolong": "P, R, products",
    "cmatch_nodes_galerkin": "P, R, products",
    "cmatch_nodes_cycle": "cycle",
}


def kernels_of_sources():
    """The phase of each kernel by its name."""
    phases = {}
    for file in SOURCES.glob("*.cu*"):
        for name in re.findall(r"__global__[^;{]*?\b([A-Z]\w+)\s*\((?!kBlock|\d)", file.read_text()):
            phases[name] = PHASES.get(file.stem, file.stem)
    return phases


class Kernel:
    def __init__(self, line, phases):
        begin, end, _, name = line.rstrip("\n").split(",", 3)
        self.begin, self.end = int(begin) / 1e3, int(end) / 1e3
        self.name = re.split(r"[<(]", name.replace("(anonymous namespace)::", "").removeprefix("void "))[0].split("::")[-1]
        self.phase = phases.get(self.name, "CUB" if "cub::" in name else "copies" if name.startswith("Copy") else "other")


def show(title, groups):
    """groups: pairs of a name and its kernels, one behind the other in time."""
    columns = list(dict.fromkeys(k.phase for _, kernels in groups for k in kernels))
    print(f"\n{title}\n")
    print("| | " + " | ".join(columns) + " | all kernels | from beginning to beginning |\n|:--|" + "--:|" * (len(columns) + 2))
    rows = []
    for k, (name, kernels) in enumerate(groups):
        until = groups[k + 1][1][0].begin if k + 1 < len(groups) else kernels[-1].end
        rows.append((name, kernels, until - kernels[0].begin))
    rows.append(("all", [k for _, kernels in groups for k in kernels], sum(row[2] for row in rows)))
    for name, kernels, elapsed in rows:
        cell = lambda chosen: f"{sum(k.end - k.begin for k in chosen):.0f} ({len(chosen)})" if chosen else ""
        cells = [cell([k for k in kernels if k.phase == column]) for column in columns]
        print(f"| {name} | " + " | ".join(cells) + f" | {cell(kernels)} | {elapsed:.0f} |")


def show_setup(kernels):
    """From CheckRows on; CompleteRows ends the operator of a level."""
    first = max(k for k, kernel in enumerate(kernels) if kernel.name == "CheckRows")
    groups, level = [("finest operator", [])], 0
    for kernel in kernels[first:]:
        if kernel.name in ("BeginCycle", "SetEnds", "MultiplyOperator", "FindLargest") or kernel.phase == "cycle":
            break
        if kernel.phase == "inverse" and groups[-1][0] != "coarsest":
            groups.append(("coarsest", []))
        groups[-1][1].append(kernel)
        if kernel.name == "CompleteRows":
            groups.append((f"level {level} to {level + 1}", []))
            level += 1
    show("Set-up: microseconds (kernels)", [group for group in groups if group[1]])


def show_iteration(kernels):
    """From one BeginCycle to the next; Restrict leads to the next level, and Prolongate back."""
    starts = [k for k, kernel in enumerate(kernels) if kernel.name == "BeginCycle"]
    periods = [(kernels[b].begin - kernels[a].begin, a, b) for a, b in zip(starts, starts[1:])]
    _, begin, end = sorted(periods)[len(periods) // 2]
    level, by_level = 0, {}
    for kernel in kernels[begin:end]:
        if kernel.phase not in ("cycle", "inverse"):
            by_level.setdefault("conjugate gradients", []).append(kernel)
            continue
        if kernel.name == "Prolongate":
            level -= 1
        by_level.setdefault(f"level {level}", []).append(kernel)
        if kernel.name == "Restrict":
            level += 1
    print("\nAn iteration of cgfused: microseconds (kernels); early launches overlap the end of the kernel before\n")
    print("| | kernels | longest |\n|:--|--:|:--|")
    for name in sorted(by_level):
        mine = by_level[name]
        longest = max(mine, key=lambda k: k.end - k.begin)
        print(f"| {name} | {sum(k.end - k.begin for k in mine):.1f} ({len(mine)}) | "
              f"{longest.name} {longest.end - longest.begin:.1f} |")
    print(f"| from one to the next | {kernels[end].begin - kernels[begin].begin:.1f} ({end - begin}) | |")


def profile(name):
    phases = kernels_of_sources()
    with open(name) as file:
        kernels = sorted((Kernel(line, phases) for line in file), key=lambda k: k.begin)
    names = {kernel.name for kernel in kernels}
    if not {"CheckRows", "BeginCycle", "CompleteRows"} <= names:
        sys.exit(f"profile.py: {name} has no set-up of cmatch, or no cycle")
    print(f"\n## {pathlib.Path(name).stem}")
    show_setup(kernels)
    show_iteration(kernels)


def main():
    names = sys.argv[1:]
    if not names or names[0].startswith("-"):
        sys.exit(__doc__)
    for name in names:
        profile(name)


main()
