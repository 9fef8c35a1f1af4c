#!/usr/bin/env python3
"""Two benchmark runs of the same systems and sets side by side, a row per system and set.

    compare.py before.json[,before2.json ..] after.json[,after2.json ..] [-o table.md]

Each side may be several runs, or kept tables, of which the fastest counts: run them in turns. Times are of warm runs, in ms.
Ends with a failure if the iterations of a row differ, or if a row is on one side alone."""
import argparse
import sys

import keep


def read(paths):
    """(system, set) -> (set-up s, solve s, iterations), and the heads of the runs"""
    rows, heads = {}, []
    for path in paths.split(","):
        report = keep.read(path)
        heads.append(report.made_with)
        for row in report.rows:
            if row["setup_s"] is not None:
                key = (row["system"], row["set"])
                setup, solve, _ = rows.get(key, (float("inf"), float("inf"), 0))
                rows[key] = (min(row["setup_s"], setup), min(row["solve_s"], solve), row["iterations"])
    return rows, heads


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    (before, old_heads), (after, new_heads) = read(args.before), read(args.after)
    lines = [f"Before: {old_heads[0]}; after: {new_heads[0]}. Warm, in ms.", "",
             "| system | set | iterations | set-up before | after | ratio | solve before | after | ratio |",
             "|:--|:--|--:|--:|--:|--:|--:|--:|--:|"]
    wrong = []
    for key in before:
        if key not in after:
            wrong.append(f"{key[0]}, {key[1]}: only before")
            continue
        (s0, t0, its0), (s1, t1, its1) = before[key], after[key]
        if its0 != its1:
            wrong.append(f"{key[0]}, {key[1]}: {its0} iterations before, {its1} after")
        its = str(its0) if its0 == its1 else f"{its0}, {its1}"
        lines.append(f"| {key[0]} | {key[1]} | {its} | {s0 * 1e3:.3f} | {s1 * 1e3:.3f} | {s1 / s0 if s0 else 1:.2f} | "
                     f"{t0 * 1e3:.2f} | {t1 * 1e3:.2f} | {t1 / t0 if t0 else 1:.2f} |")
    wrong += [f"{key[0]}, {key[1]}: only after" for key in after if key not in before]
    text = "\n".join(lines) + "\n"
    print(text)
    if args.output:
        open(args.output, "w").write(text)
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
