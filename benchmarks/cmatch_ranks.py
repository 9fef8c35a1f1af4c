#!/usr/bin/env python3
"""Tables of cmatch on several ranks, beside gamg, from runs of finepc_bench with sets/cmatch_ranks.txt:

    cmatch_ranks FINEPC_BENCH FOLDER [SPE10.petsc]
    cmatch_ranks.py FOLDER/cmatch_ranks_*.json [-o table.md] [--expect N] [--expect-beside-one N]

Iterations beside those of the prototype with which the method on several ranks was designed, and the levels of each hierarchy."""
import argparse
import json
import re

from made_with import made_with

RANKS = (1, 2, 4, 8, 32)
# Systems in the order of the table, with their words.
SYSTEMS = {
    "poisson3d7:64": "Poisson 64³", "poisson3d7:100": "Poisson 100³", "jumps:64": "jumps of 1e4, 64³",
    "jumps_random": "random jumps of 1e4, 64³", "jumps:121": "jumps of 1e4, 121³", "spe10": "SPE10",
    "poisson2d5:1023": "2D Poisson 1023²", "aniso3d:511x511x1:1e3:1e-13": "2D, 511², 1000 times stronger along y",
}
# Iterations of the prototype, by number of ranks; it was not run for all of them.
PROTOTYPE = {
    ("poisson3d7:64", "slabs"): {1: 14, 2: 14, 4: 14, 8: 14, 32: 15}, ("poisson3d7:64", "boxes"): {2: 14, 4: 14, 8: 14, 32: 14},
    ("poisson3d7:100", "slabs"): {1: 14, 2: 15, 4: 15, 8: 15, 32: 15}, ("poisson3d7:100", "boxes"): {2: 15, 4: 15, 8: 15, 32: 15},
    ("jumps:64", "slabs"): {1: 15, 2: 15, 4: 15, 8: 15, 32: 16}, ("jumps:64", "boxes"): {2: 15, 4: 15, 8: 15, 32: 15},
    ("jumps_random", "slabs"): {1: 15, 8: 15, 32: 15}, ("jumps_random", "boxes"): {8: 15, 32: 16},
    ("jumps:121", "slabs"): {1: 15, 2: 15, 8: 15, 32: 15}, ("jumps:121", "boxes"): {2: 15, 8: 15, 32: 15},
    ("spe10", "slabs"): {1: 27, 2: 27, 4: 27, 8: 26, 32: 25}, ("spe10", "boxes"): {2: 26, 4: 26, 8: 26, 32: 26},
    ("poisson2d5:1023", "slabs"): {1: 24, 2: 24, 4: 25, 8: 24, 32: 25}, ("poisson2d5:1023", "boxes"): {2: 24, 4: 25, 8: 22, 32: 25},
    ("aniso3d:511x511x1:1e3:1e-13", "slabs"): {1: 26, 32: 26},
}


class Run:
    def __init__(self, report, system, result):
        boxes = re.match(r"boxes:([0-9x]+):([0-9x]+:)?", system["name"])
        self.system = system["name"][boxes.end() if boxes else 0:]
        self.boxes = boxes[1] if boxes else ""
        self.partition = "boxes" if boxes else "slabs"
        self.ranks, self.rows, self.label, self.status = report["ranks"], system["rows"], result["label"], result["status"]
        self.iterations, self.complexity = result.get("iterations"), result["complexity"]
        self.weak = any(other["label"] == "cmatch-spread" for other in system["results"])
        self.levels = levels(result["view"])
        self.end = next((line for line in result["view"] if line.startswith("coarsening ")
                         and ("ended" in line or "stalled" in line)), "")

    def cell(self):
        if self.status in ("ok", "missed"):
            return f"{self.iterations}{'*' if self.status == 'missed' else ''}"
        return self.status


class Level:
    """A line of a view's table of levels: rows and entries; ranks, rows and ghosts of a rank."""

    def __init__(self, fields):
        self.rows, self.entries = int(fields[1]), int(fields[2])
        self.ranks, self.least, self.most, self.ghosts, self.note = 1, self.rows, self.rows, 0, ""


def levels(view):
    found, table = [], None
    for line in view:
        if line.startswith("level "):
            table = "ranks" if "ranks" in line else "rows"
            continue
        if table and re.match(r"\d+ +\d", line):
            fields, _, note = line.partition(",")
            fields = fields.split()
            if table == "rows":
                found.append(Level(fields))
            else:
                level = found[int(fields[0])]
                level.ranks, level.least, level.most, level.ghosts = (int(field) for field in fields[1:5])
                level.note = note.split(":")[0].split(",")[0].split(" to ")[0].strip()
        else:
            table = None
    return found


def load(paths):
    """Runs of all files, and a line about each file."""
    runs, heads = [], []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        runs += [Run(report, system, result) for system in report["systems"] for result in system["results"]]
        name = path.rsplit("/", 1)[-1]
        heads.append((report["ranks"], f"- `{name}`: backend {report['backend']}, {made_with(report)}, {report['date']}"))
    return runs, [head for _, head in sorted(heads)]


def iterations(runs, say):
    """The table of iterations, and how it compares with the prototype: how many cases are within 1, and those that are not."""
    within, beyond, fewer, stalled = 0, [], 0, []
    say("| system | partition | | " + " | ".join(str(ranks) for ranks in RANKS) + " |\n|:--|:--|:--|" + "--:|" * len(RANKS))
    for system, words in SYSTEMS.items():
        for partition in ("slabs", "boxes"):
            here = {(run.label, run.ranks): run for run in runs if (run.system, run.partition) == (system, partition)}
            if not here:
                continue
            asked = PROTOTYPE.get((system, partition), {})
            lines = {"cmatch": [], "the prototype": [], "gamg": []}
            for ranks in RANKS:
                for label in ("cmatch", "gamg"):
                    lines[label].append(here[label, ranks].cell() if (label, ranks) in here else "")
                lines["the prototype"].append(str(asked.get(ranks, "")))
                run = here.get(("cmatch", ranks))
                if run and ranks in asked:
                    good = run.status == "ok" and run.iterations <= asked[ranks] + 1
                    within += good
                    fewer += good and run.iterations < asked[ranks] - 1
                    if not good:
                        beyond.append(f"{words}, {ranks} {partition}: {run.cell()} and {asked[ranks]}")
                if run and "stalled" in run.end:
                    stalled.append(f"{words}, {ranks} {partition}")
            for label, cells in lines.items():
                first = f"{words} | {partition}" if label == "cmatch" else " |"
                say(f"| {first} | {label} | " + " | ".join(cells) + " |")
    say(f"\nOf {within + len(beyond)} cases that the prototype was run for, `cmatch` takes at most one iteration more in {within}"
        + (f", and over one fewer in {fewer}" if fewer else "") + ("." if not beyond else "; not so: " + "; ".join(beyond) + "."))
    if stalled:
        say("\nCoarsening stalled: " + "; ".join(stalled) + ".")
    return within, beyond


def beside_one_rank(runs):
    """Of runs on numbers of ranks that the prototype was not run on: how many are within 1 of the prototype on one rank, and which
    are not."""
    within, beyond = 0, []
    for run in runs:
        one = PROTOTYPE.get((run.system, "slabs"), {}).get(1)
        if run.label != "cmatch" or one is None or run.ranks in PROTOTYPE.get((run.system, run.partition), {}):
            continue
        if run.status == "ok" and run.iterations <= one + 1:
            within += 1
        else:
            beyond.append(f"{SYSTEMS[run.system]}, {run.ranks} {run.partition}: {run.cell()} and {one} on one rank")
    return within, beyond


def hierarchies(runs, say):
    say("| system | partition | ranks | levels | operator complexity | of gamg | rows of the levels | ranks of the levels |\n"
        "|:--|:--|--:|--:|--:|--:|:--|:--|")
    for system, words in SYSTEMS.items():
        for partition in ("slabs", "boxes"):
            for ranks in RANKS:
                here = {run.label: run for run in runs if (run.system, run.partition, run.ranks) == (system, partition, ranks)}
                if "cmatch" not in here:
                    continue
                run = here["cmatch"]
                notes = "".join(f"; level {l} {level.note}" for l, level in enumerate(run.levels) if level.note)
                shown = f"{partition}{' ' + run.boxes if run.boxes else ''}"
                gamg = f"{here['gamg'].complexity:.2f}" if "gamg" in here and here["gamg"].complexity else ""
                say(f"| {words} | {shown} | {ranks} | {len(run.levels)} | {run.complexity:.2f} | {gamg} | "
                    + ", ".join(f"{level.rows:,}" for level in run.levels) + " | "
                    + ", ".join(str(level.ranks) for level in run.levels) + notes + " |")


def weak(runs, say):
    say("| ranks | unknowns | `cmatch`: iterations | operator complexity | spread: iterations | operator complexity | `gamg`: "
        "iterations | operator complexity |\n|--:|--:|--:|--:|--:|--:|--:|--:|")
    for ranks in sorted({run.ranks for run in runs}):
        here = {run.label: run for run in runs if run.ranks == ranks}
        cells = [f"{here[label].cell()} | {here[label].complexity:.3f}" if label in here else " |"
                 for label in ("cmatch", "cmatch-spread", "gamg")]
        say(f"| {ranks} | {next(iter(here.values())).rows:,} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("-o", "--output", help="Markdown file")
    parser.add_argument("--expect", type=int, metavar="N",
                        help="end with an error unless N cases take at most one iteration more than the prototype, and none more")
    parser.add_argument("--expect-beside-one", type=int, metavar="N",
                        help="likewise of N cases that the prototype was not run for, beside its iterations on one rank")
    parser.add_argument("--note", default="", help="a sentence about the runs")
    options = parser.parse_args()

    runs, heads = load(options.runs)
    scaled = [run for run in runs if run.weak] # the same cube for each rank, with the set that leaves levels on all ranks
    rest = [run for run in runs if not run.weak]
    lines, within, beyond = [], 0, []
    say = lines.append
    say("# cmatch on several ranks\n")
    say("Made by cmatch_ranks.py of runs of finepc_bench: iterations of `cg` with `cmatch`, with its defaults, to a true\n"
        "residual of 1e-8, beside PETSc's `gamg`. Slabs are successive rows in the natural order of the grid; boxes are numbered\n"
        "one after the other, as by a DMDA. \"The prototype\" is the program with simulated ranks with which the method was\n"
        "designed: its numbers are what the iterations were asked to be within 1 of. *: CG's own residual fell to 1e-8, and the\n"
        "true one is above 1.05e-8."
        + (f"\n{options.note}" if options.note else "") + "\n")
    say("\n".join(heads) + "\n")
    if rest:
        say("## Iterations\n")
        within, beyond = iterations(rest, say)
        say("\n## Hierarchies\n")
        hierarchies(rest, say)
    if scaled:
        say("\n## As many unknowns for each rank\n")
        say("Poisson, 7 points, a cube of 64 points a side for each rank. Spread: levels of over 1000 rows stay on all ranks.\n")
        weak(scaled, say)
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    if options.expect is not None and (beyond or within != options.expect):
        raise SystemExit(f"cmatch_ranks: {within} cases of {options.expect} take at most one iteration more than the prototype; "
                         f"beyond: {'; '.join(beyond) or 'none'}")
    if options.expect_beside_one is not None:
        within, beyond = beside_one_rank(rest)
        if beyond or within != options.expect_beside_one:
            raise SystemExit(f"cmatch_ranks: {within} cases of {options.expect_beside_one} take at most one iteration more than "
                             f"the prototype on one rank; beyond: {'; '.join(beyond) or 'none'}")


if __name__ == "__main__":
    main()
