#!/usr/bin/env python3
"""Draws what rrb_levels wrote, as figures 5.1 and 5.2 of paper 003: condition numbers and CG iterations against levels.

    plot_rrb.py rrb_levels.json [more.json ...] -o rrb_levels.png [--md rrb_levels.md]"""
import argparse
import json

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


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
        axes[0].plot(levels, [by_level[level]["condition"] for level in levels], marker="o", markersize=3, label=f"1/h = {inverse_h}")
        axes[1].plot(levels, [by_level[level]["iterations"] for level in levels], marker="o", markersize=3, label=f"1/h = {inverse_h}")
    axes[0].set_ylabel("condition number")
    axes[1].set_ylabel(f"CG iterations to {', '.join(f'{rtol:g}' for rtol in sorted(rtols))}")
    for axis in axes:
        axis.set_xlabel("levels")
        axis.grid(alpha=0.3)
        axis.legend()
    figure.tight_layout()
    figure.savefig(options.output, dpi=130)

    if options.md:
        columns = sorted({level for by_level in results.values() for level in by_level})
        with open(options.md, "w") as file:
            file.write("PCRRB on Poisson's problem of paper 003, section 4.2: CG iterations / condition number by levels. Written by plot_rrb.py.\n\n")
            file.write("| 1/h | " + " | ".join(map(str, columns)) + " |\n|---" * 1 + "|---" * len(columns) + "|\n")
            for inverse_h, by_level in sorted(results.items()):
                cells = [f"{by_level[level]['iterations']} / {by_level[level]['condition']:.3g}" if level in by_level else "" for level in columns]
                file.write(f"| {inverse_h} | " + " | ".join(cells) + " |\n")


if __name__ == "__main__":
    main()
