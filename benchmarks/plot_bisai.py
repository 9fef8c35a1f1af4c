#!/usr/bin/env python3
"""Draws what paper_table.py tabulates, as figures 4 to 12 of the block-ISAI paper (Ma, Hu, Yuan, Liu 2021), a panel a system and
two panels a line, in two files: the overall time of every set with its speed-up, and bisai's set-up by events of PETSc's log.

    plot_bisai.py results.json [more.json ...] [-o plot.png]        # writes plot.png and plot_setup.png

Speed-ups are over GMRES(30) with PETSc's block triangular solves on the host, as in the paper: `block-ilu`, or `baij-ilu` where
a run has no `block-ilu`."""
import argparse
import os

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from paper_table import event, head, load, logged, number, solved  # noqa: E402

BASELINES = ("block-ilu", "baij-ilu")
WIDTH = 9.0  # inches: a page, on which the smallest letters are to be read
# Parts of a set-up, which add up to it: the time of the first event without that of the others
PARTS = {
    "blocks of the matrix": ("BISAIConvert",),
    "L and U": ("BISAIFactor", "BISAICopy"),
    "L and U to the GPU": ("BISAICopy",),
    "patterns of the inverses": ("BISAIPattern",),
    "values of the inverses": ("BISAIValues",),
    "the rest": ("PCSetUp", "BISAIConvert", "BISAIFactor", "BISAIPattern", "BISAIValues"),
}


def logged_sets(system):
    return [r for r in system["results"] if event(r, "BISAIFactor")]


def seconds_of(result, part):
    first, *others = PARTS[part]
    return max(0, event(result, first) - sum(event(result, name) for name in others))


def plot_setup(axes, system):
    """A bar a set. One that is far longer than the others leaves the axes, and its length is written on it."""
    results = logged_sets(system)
    totals = sorted(event(r, "PCSetUp") for r in results)
    end = next((t for t in reversed(totals) if t <= 3 * totals[0]), 0)
    for k, r in enumerate(results):
        left = 0
        for color, part in enumerate(PARTS):
            width = 1e3 * seconds_of(r, part)
            axes.barh(k, width, left=left, color=f"C{color}", label=part if k == 0 else None)
            left += width
        total = event(r, "PCSetUp")
        text = f"{number(1e3 * total)} ms, {100 * total / r['solve_s']:.0f} %"
        if total > end:
            axes.text(1.42e3 * end, k, text + " →", va="center", ha="right", fontsize=9, color="white", fontweight="bold")
        else:
            axes.text(1e3 * total, k, " " + text, va="center", fontsize=9)
    axes.set_yticks(range(len(results)), [r["label"] for r in results])
    if end:
        axes.set_xlim(0, 1.45e3 * end)
    axes.invert_yaxis()
    axes.set_xlabel(f"ms, and % of the solve; {logged(system)}", fontsize=8)


def plot_overall(axes, system):
    results = [r for r in system["results"] if solved(r)]
    totals = {r["label"]: r["setup_s"] + r["solve_s"] for r in results}
    baseline = next((label for label in BASELINES if label in totals), None)
    for k, r in enumerate(results):
        total = totals[r["label"]]
        axes.barh(k, 1e3 * total, color="tab:blue" if r["pc_type"] == "bisai" else "tab:gray")
        speedup = f", {number(totals[baseline] / total)} x" if baseline else ""
        axes.text(1e3 * total, k, f" {number(1e3 * total)} ms, {r['iterations']} its{speedup}", va="center", fontsize=9)
    axes.set_yticks(range(len(results)), [r["label"] for r in results])
    axes.set_xscale("log")
    axes.set_xlim(0.3e3 * min(totals.values(), default=1.0), 900e3 * max(totals.values(), default=1.0))  # room for the text
    axes.invert_yaxis()
    axes.set_xlabel(f"ms, set-up and solve; x: {baseline}'s over it" if baseline else "ms, set-up and solve")


def draw(reports, systems, plot, bars, path):
    lines = (len(systems) + 1) // 2
    columns = min(2, len(systems))
    figure, grid = plt.subplots(lines, columns, squeeze=False, figsize=(WIDTH, 1.2 + lines * (1.0 + 0.24 * bars)),
                                layout="constrained")
    for axes, system in zip(grid.flat, systems):
        axes.set_title(f"{system['name']}\n{system['rows']:,} rows, {system['nnz']:,} nonzeros", fontsize=10)
        plot(axes, system)
    for axes in grid.flat[len(systems):]:
        axes.set_axis_off()
    handles, labels = grid.flat[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, ncols=3, loc="lower center", fontsize=9, bbox_to_anchor=(0.5, 1.0))
    figure.suptitle("\n".join(dict.fromkeys(head(report) for report in reports)), fontsize=9)
    figure.savefig(path, dpi=130, bbox_inches="tight")
    print(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", nargs="+")
    parser.add_argument("-o", "--output", default="bisai.png")
    args = parser.parse_args()
    reports, systems = load(args.json)
    stem, ending = os.path.splitext(args.output)
    draw(reports, systems, plot_overall, max(len(s["results"]) for s in systems), args.output)
    measured = [s for s in systems if logged_sets(s)]
    if measured:
        draw(reports, measured, plot_setup, max(len(logged_sets(s)) for s in measured), f"{stem}_setup{ending}")


if __name__ == "__main__":
    main()
