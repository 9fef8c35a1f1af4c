#!/usr/bin/env python3
"""Draws what rrb_levels wrote, as figures 5.1 and 5.2 of the paper on the RRB-solver (de Jong, van der Ploeg, Ditzel, Vuik 2017):
condition numbers and CG iterations against levels.

    plot_rrb.py rrb_levels.json [more.json ...] -o rrb_levels.png [--md rrb_levels.md]"""
import argparse
import json
import math

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


def notay(levels):
    """Notay's upper bound for the condition number, which the paper gives in its introduction and in section 2.4 as (1.8) of its
    reference 12; none for one level."""
    if levels < 2:
        return math.inf
    root = math.sqrt(5)
    return root * (root - 1) ** (levels - 1) / (1 + (-1) ** levels * ((3 - root) / 2) ** (levels - 1))


# What is said where the paper's two readings of l differ
ABOUT_BOUND = (
    "In the bound l is the number of levels, as in the paper's introduction: section 2.4 has l = log2(n + 1) beside it, half of "
    "the levels of full RRB, for which it would be {half:.1f} at 1/h = {inverse_h}, where the condition number is {condition:.1f}."
)


def cell(result):
    return f"{result['iterations']} / {result['condition']:.3g}" if result else ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+")
    parser.add_argument("-o", "--output", default="rrb_levels.png")
    parser.add_argument("--md", help="the same as a table")
    options = parser.parse_args()
    results, rtols = {}, set()
    for path in options.files:
        with open(path) as file:
            data = json.load(file)
        rtols.add(data["rtol"])
        for result in data["results"]:
            results.setdefault(result["inverse_h"], {})[result["levels"]] = result

    figure, axes = plt.subplots(1, 2, figsize=(12, 4.5))
    for inverse_h, by_level in sorted(results.items()):
        levels = sorted(by_level)
        for axis, key in zip(axes, ("condition", "iterations")):
            axis.plot(levels, [by_level[level][key] for level in levels], marker="o", markersize=3, label=f"1/h = {inverse_h}")
    columns = sorted({level for by_level in results.values() for level in by_level})
    largest = max(result["condition"] for by_level in results.values() for result in by_level.values())
    bounded = [level for level in columns if notay(level) <= 3 * largest]
    axes[0].plot(bounded, [notay(level) for level in bounded], color="black", linestyle="--", label="Notay's bound")
    axes[0].set_title("Condition number of the preconditioned matrix")
    axes[1].set_title("Iterations of CG with rrb")
    figure.suptitle("Poisson's problem, as figures 5.1 and 5.2 of de Jong, van der Ploeg, Ditzel, Vuik 2017", fontsize=10)
    axes[0].set_ylabel("condition number")
    axes[1].set_ylabel(f"CG iterations to {', '.join(f'{rtol:g}' for rtol in sorted(rtols))}")
    for axis in axes:
        axis.set_xlabel("levels")
        axis.grid(alpha=0.3)
        axis.legend()
    figure.tight_layout()
    figure.savefig(options.output, dpi=130)

    share = max(result["condition"] / notay(level) for by_level in results.values() for level, result in by_level.items())
    summary = f"Condition numbers are at most {share:.4f} of Notay's bound."
    for inverse_h, by_level in sorted(results.items()):  # until the first grid that tells the readings of l apart
        half, full = math.log2(inverse_h), max(by_level)
        if by_level[full]["condition"] > notay(half):
            summary += " " + ABOUT_BOUND.format(half=notay(half), inverse_h=inverse_h, condition=by_level[full]["condition"])
            break
    print(summary)
    if options.md:
        with open(options.md, "w") as file:
            file.write("PCRRB on Poisson's problem, section 4.2 of de Jong, van der Ploeg, Ditzel, Vuik 2017: CG iterations / ")
            file.write("condition number by levels.\nWritten by plot_rrb.py.\n\n")
            file.write("| 1/h | " + " | ".join(map(str, columns)) + " |\n|---" + "|---" * len(columns) + "|\n")
            for inverse_h, by_level in sorted(results.items()):
                file.write(f"| {inverse_h} | " + " | ".join(cell(by_level.get(level)) for level in columns) + " |\n")
            file.write("| Notay's bound | " + " | ".join("" if level < 2 else f"{notay(level):.3g}" for level in columns) + " |\n")
            file.write(f"\n{summary}\n")


if __name__ == "__main__":
    main()
