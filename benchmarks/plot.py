#!/usr/bin/env python3
"""Plots results of finepc_bench: per system, convergence above and set-up + solve time below.

    plot.py results.json [more.json ...] [-o plot.png] [--systems A,B] [--sets a,b] [--by-time]
"""
import argparse
import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


def load(paths):
    """{system name: {"rows": ..., "results": {label: result}}} of all files; a later file wins over an earlier one"""
    systems, where = {}, []
    for path in paths:
        with open(path) as file:
            data = json.load(file)
        where.append(f"{data['device']}, PETSc {data['petsc']}, commit {data['commit']}, {data['date'][:10]}")
        for system in data["systems"]:
            entry = systems.setdefault(system["name"], {"rows": system["rows"], "nnz": system["nnz"], "results": {}})
            for result in system["results"]:
                entry["results"][result["label"]] = result
    return systems, list(dict.fromkeys(where))


def plot_convergence(axes, results, colors, by_time):
    """What did not converge in time leaves the axes, which end a little after the slowest of the others."""
    ends, floor = [], 1e-1
    for label, result in results.items():
        history = [value for value in result.get("history", []) if value is not None]
        if not history or history[0] <= 0:
            continue
        steps = [k * result["history_stride"] for k in range(len(history))]
        if by_time:
            steps = [1e3 * (result["setup_s"] + k * result["iteration_s"]) for k in steps]
        curve = [value / history[0] for value in history]
        converged = result["status"] == "ok"
        if converged:
            ends.append(steps[-1])
            floor = min(floor, curve[-1])
        axes.semilogy(steps, curve, color=colors[label], label=label, linewidth=1.4, linestyle="-" if converged else ":")
    if ends:
        axes.set_xlim(0, 1.3 * max(ends))
        axes.set_ylim(0.3 * floor, 30)
    axes.set_xlabel("ms, set-up included" if by_time else "iteration")
    axes.set_ylabel("residual norm, relative")
    axes.grid(alpha=0.3)


def milliseconds(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 0.01 else "0"


def ending(result):
    """How a run that is not ok has ended, in words; nothing for one that is"""
    if result["status"] == "ok":
        return ""
    if "DIVERGED_ITS" in result["note"]:
        return f"not converged in {result['iterations']} its"
    return result["status"] + (f" ({result['note']})" if result["status"] == "diverged" else "")


def plot_times(axes, results, colors):
    labels = list(results)
    known = [result for result in results.values() if "setup_s" in result]
    good = [result for result in known if result["status"] == "ok"] or known
    longest = 1.15 * max((1e3 * result["total_s"] for result in good), default=1.0)  # of those that did not converge one may leave
    for k, label in enumerate(labels):
        result = results[label]
        if "setup_s" not in result:
            axes.text(0, k, " " + ending(result), va="center", fontsize=8, color="firebrick")
            continue
        setup, solve = 1e3 * result["setup_s"], 1e3 * result["solve_s"]
        axes.barh(k, setup, color=colors[label], alpha=0.45)
        axes.barh(k, solve, left=setup, color=colors[label])
        text = f" {milliseconds(setup)} + {milliseconds(solve)} ms, " + (ending(result) or f"{result['iterations']} its")
        axes.text(min(setup + solve, longest), k, text, va="center", fontsize=8)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xlim(0, 1.7 * longest)  # room for the text
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel("ms: set-up (pale) + solve")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", nargs="+")
    parser.add_argument("-o", "--output", default="bench.png")
    parser.add_argument("--systems", help="only these, separated by commas")
    parser.add_argument("--sets", help="only these, separated by commas")
    parser.add_argument("--by-time", action="store_true", help="convergence against time instead of iterations")
    arguments = parser.parse_args()

    systems, where = load(arguments.json)
    if arguments.systems:
        systems = {name: systems[name] for name in arguments.systems.split(",") if name in systems}
    if arguments.sets:
        for entry in systems.values():
            entry["results"] = {label: entry["results"][label] for label in arguments.sets.split(",") if label in entry["results"]}
    systems = {name: entry for name, entry in systems.items() if entry["results"]}
    if not systems:
        sys.exit("plot.py: nothing to plot")

    labels = list(dict.fromkeys(label for entry in systems.values() for label in entry["results"]))
    colormap = plt.get_cmap("tab10" if len(labels) <= 10 else "tab20")
    colors = {label: colormap(k % colormap.N) for k, label in enumerate(labels)}

    bars = max(len(entry["results"]) for entry in systems.values())
    figure, grid = plt.subplots(
        2, len(systems), squeeze=False, figsize=(max(6.4, 5.2 * len(systems)), 4.0 + 0.9 + 0.3 * bars), layout="constrained",
        gridspec_kw={"height_ratios": [4.0, 0.9 + 0.3 * bars]})
    for column, (name, entry) in enumerate(systems.items()):
        grid[0][column].set_title(f"{name}\n{entry['rows']:,} rows, {entry['nnz']:,} nonzeros", fontsize=10)
        plot_convergence(grid[0][column], entry["results"], colors, arguments.by_time)
        plot_times(grid[1][column], entry["results"], colors)
    handles = {}
    for axes in grid[0]:
        for handle, label in zip(*axes.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    if handles:
        grid[0][0].legend(handles.values(), handles.keys(), fontsize=8)
    figure.suptitle("; ".join(where), fontsize=8)
    figure.savefig(arguments.output, dpi=130)
    print(arguments.output)


if __name__ == "__main__":
    main()
