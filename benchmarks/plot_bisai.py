#!/usr/bin/env python3
"""Draws what paper_table.py tabulates, as figures 4 to 12 of the block-ISAI paper (Ma, Hu, Yuan, Liu 2021): per system, bisai's
set-up by events of PETSc's log above, and the overall time of every set with its speed-up below.

    plot_bisai.py results.json [more.json ...] [-o plot.png]

Speed-ups are over GMRES(30) with PETSc's block triangular solves on the host, as in the paper: `block-ilu`, or `baij-ilu` where
a run has no `block-ilu`."""
import argparse

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from paper_table import event, head, load, logged, number, solved  # noqa: E402

BASELINES = ("block-ilu", "baij-ilu")
SHORTEST = 1e-5  # seconds of an event that is drawn


def logged_sets(system):
    return [r for r in system["results"] if event(r, "BISAIFactor")]


def event_names(system):
    """bisai's, and all of the set-up."""
    events = [e for r in logged_sets(system) for e in r["events"] if e["name"].startswith("BISAI") and e["s"] >= SHORTEST]
    return list(dict.fromkeys(e["name"] for e in events)) + ["PCSetUp"]


def plot_setup(axes, system):
    """A bar an event, none upon another: some events hold others."""
    results, names = logged_sets(system), event_names(system)
    height = 0.85 / len(names)
    for k, name in enumerate(names):
        times = [1e3 * event(r, name) if event(r, name) >= SHORTEST else 0 for r in results]
        places = [row + k * height for row in range(len(results))]
        axes.barh(places, times, height, label="set-up in all" if name == "PCSetUp" else name)
        for place, time, r in zip(places, times, results):
            text = f" {number(time)} ms, {0.1 * time / r['solve_s']:.1f} %" if time else ""
            axes.text(time, place, text, va="center", fontsize=7)
    axes.set_yticks([row + 0.425 - height / 2 for row in range(len(results))], [r["label"] for r in results])
    axes.set_xscale("log")
    axes.set_xlim(right=50e3 * max((event(r, "PCSetUp") for r in results), default=1.0))  # room for the text
    axes.invert_yaxis()
    axes.set_xlabel(f"ms, and % of T_total; {logged(system)}")
    axes.legend(fontsize=7, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def plot_overall(axes, system):
    results = [r for r in system["results"] if solved(r)]
    totals = {r["label"]: r["setup_s"] + r["solve_s"] for r in results}
    baseline = next((label for label in BASELINES if label in totals), None)
    for k, r in enumerate(results):
        total = totals[r["label"]]
        axes.barh(k, 1e3 * total, color="tab:blue" if r["pc_type"] == "bisai" else "tab:gray")
        speedup = f", {number(totals[baseline] / total)} x" if baseline else ""
        axes.text(1e3 * total, k, f" {number(1e3 * total)} ms, {r['iterations']} its{speedup}", va="center", fontsize=7)
    axes.set_yticks(range(len(results)), [r["label"] for r in results])
    axes.set_xscale("log")
    axes.set_xlim(0.5e3 * min(totals.values(), default=1.0), 50e3 * max(totals.values(), default=1.0))
    axes.invert_yaxis()
    axes.set_xlabel(f"ms, set-up + T_total; x: {baseline}'s over it" if baseline else "ms, set-up + T_total")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", nargs="+")
    parser.add_argument("-o", "--output", default="bisai.png")
    args = parser.parse_args()
    reports, systems = load(args.json)
    bars, sets = max(len(logged_sets(s)) * len(event_names(s)) for s in systems), max(len(s["results"]) for s in systems)
    heights = [1 + 0.13 * bars, 1 + 0.3 * sets]
    figure, grid = plt.subplots(
        2, len(systems), squeeze=False, figsize=(max(6.4, 5.2 * len(systems)), 1 + sum(heights)), layout="constrained",
        gridspec_kw={"height_ratios": heights})
    for column, system in enumerate(systems):
        grid[0][column].set_title(f"{system['name']}\n{system['rows']:,} rows, {system['nnz']:,} nonzeros", fontsize=10, pad=36)
        plot_setup(grid[0][column], system)
        plot_overall(grid[1][column], system)
    figure.suptitle("\n".join(dict.fromkeys(head(report) for report in reports)), fontsize=8)
    figure.savefig(args.output, dpi=130)
    print(args.output)


if __name__ == "__main__":
    main()
