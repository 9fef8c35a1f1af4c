#!/usr/bin/env python3
"""What -pc_type auto takes, beside the best of the candidates of its rules: a table of runs of finepc_bench, for
results/auto_choices.md and, by times, results/auto_gpu.md and auto_gpu_2.md.

    auto_choices.py run.json [more.json ..] -o results/auto_choices.md --command "finepc_bench ..."
    auto_choices.py --times run.json [more.json ..] -o results/auto_gpu.md --command "finepc_bench -solves 4 ..."

A run has sets whose labels are auto or end with -auto, and sets of single candidates, whose options are those of a line in
src/pc/auto/auto_rules.txt. finepc_bench with -set_limit 0: with a limit it has a convergence test of its own, into which auto does
not look. Costs are counted as auto counts them, in iterations with jacobi, from the iterations and the costs of the rules, so that
they are the same on every machine. A solve that the recurrence has ended before the true residual was as small counts as well.

With --times the costs are seconds, of the fastest warm run, and auto is compared with candidates for the same solver and the same
type of matrix. The trials of auto come in later solves, so that the third solve with one KSP stands beside the first one."""
import argparse
import json
import math
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from finepc_try import rules  # noqa: E402

USUAL_ROW = 7  # as in auto_rules.cxx
SOLVED = ("ok", "missed")


class Costs:
    """Of an iteration and a set-up, by the rules for a host or a GPU"""

    def __init__(self, backend):
        other = "!device" if backend == "cuda" else "device"
        self.lines = [line for line in rules.table()[0] if other not in line[2].split()]

    def of(self, options, row):
        """(name, iteration, set-up) of the candidate with these options, or None"""
        words = re.sub(r"-(ksp_type|ksp_pc_side|ksp_max_it|mat_type) \S+", "", options).split()
        for name, text, _, iteration, set_up, growth, _ in self.lines:
            if text.split() == words:
                return name, float(iteration), float(set_up) * (max(row, 1) / USUAL_ROW) ** float(growth)
        return None

    def named(self, name):
        return next(float(line[3]) for line in self.lines if line[0] == name)


def found(pattern, view):
    return [match for line in view for match in re.findall(pattern, line)]


def read(paths):
    """system -> the results of all files, the rows and entries, and the first file's head"""
    systems, head = {}, None
    for path in paths:
        with open(path, encoding="utf-8") as f:
            run = json.load(f)
        head = head or run
        for system in run["systems"]:
            there = systems.setdefault(system["name"], {"rows": system["rows"], "nnz": system["nnz"], "results": []})
            there["results"] += system["results"]
    return systems, head


def line(name, system, costs):
    """The row of a system, and the ratios of its first and its next solve"""
    row = system["nnz"] / system["rows"]
    candidates, auto = [], None
    for result in system["results"]:
        if result["label"].split("-")[-1] == "auto":
            auto = result
        elif result["status"] in SOLVED and (cost := costs.of(result["options"], row)):
            first = cost[2] + cost[1] * result["iterations"]
            candidates.append((first, cost[0], cost[1] * result["iterations"], result["iterations"]))
    if not auto or auto["status"] not in SOLVED or not candidates:
        return None
    tried = [(who, int(its)) for who, its in found(r"tried: (\w+), .* the last one of (\d+) iterations", auto["view"])]
    taken = found(r"these options fix the choice: (.*)", auto["view"])[0].strip()
    work = float(found(r"cost as much as (\d+) iterations", auto["view"])[0])
    last = next((who, its) for who, its in tried if [who, taken] in [candidate[:2] for candidate in costs.lines])
    again = last[1] * costs.named(last[0])
    solves = int(found(r"since these nonzeros: (\d+) solves", auto["view"])[0])
    best = min(candidates)
    own = next((c[0] for c in candidates if c[1] == last[0]), None)
    first = work - (solves - 1) * again
    cells = [name, f"{system['rows']:,}", ", ".join(f"{who} {its}" for who, its in tried), f"{first:.0f}",
             f"{max(first - own, 0):.0f}" if own else "", f"{best[1]} {best[3]}", f"{best[0]:.0f}", f"{first / best[0]:.2f}",
             f"{again / best[2]:.2f}"]
    return cells, first / best[0], again / best[2]


# ------------------------------------------- by time ------------------------------------------


class Times:
    """Seconds of a result, those of the fastest warm run, or of the first use where there is no other"""

    def __init__(self, result):
        later = [run["later"] for run in result["warm"] if len(run["later"]) > 1]
        self.set_up, self.solve = result["setup_s"], result["solve_s"]
        self.first = self.set_up + self.solve
        self.third = min((run[1]["s"] for run in later), default=math.inf)
        self.three = self.first + min((run[0]["s"] + run[1]["s"] for run in later), default=math.inf)
        self.its, self.warm = result["iterations"], bool(later)


def milliseconds(seconds, warm=True):
    if seconds == math.inf:
        return ""
    return f"{1e3 * seconds:.{2 if seconds < 0.01 else 1 if seconds < 0.1 else 0}f}" + ("" if warm else " †")


def groups(systems):
    """Those results that may be compared: of one system, with one solver and one type of matrix"""
    for name, system in systems.items():
        kinds = {}
        for result in system["results"]:
            kinds.setdefault(tuple(re.findall(r"-(ksp|mat)_type (\S+)", result["options"])), []).append(result)
        for kind, results in kinds.items():
            blocks = ("mat", "block") in kind
            yield re.sub(r".*/|\.petsc(\.[gx]z)?$", "", name) + (", in blocks" if blocks else ""), {**system, "results": results}


def timed_line(name, system, costs):
    """The row of a system, and the ratios of its first, its third and its three solves; or why there is none"""
    row = system["nnz"] / system["rows"]
    candidates, auto = {}, None
    for result in system["results"]:
        if result["label"].split("-")[-1] == "auto":
            auto = result
        elif result["status"] == "ok" and (cost := costs.of(result["options"], row)):
            candidates[cost[0]] = Times(result)
    if not auto or not candidates:
        return None
    if auto["status"] != "ok":
        return f"{name}: {auto['status']} {auto['note']}, while {', '.join(candidates)} work"
    tried = found(r"tried: (\w+), .* solves, the last one of (\d+) iterations", auto["view"])
    look = float(found(r"seen: .* in (\S+) s$", auto["view"])[0])
    taken = found(r"these options fix the choice: (.*)", auto["view"])[0].strip()
    last = next(who for who, *_ in tried if [who, taken] in [candidate[:2] for candidate in costs.lines])
    times, own = Times(auto), candidates.get(last)
    who = min(candidates, key=lambda c: candidates[c].first)
    who_of_three = min(candidates, key=lambda c: candidates[c].three)
    best, best_of_three = candidates[who], candidates[who_of_three]
    parts = (times.first, best.first), (times.third, best.third), (times.three, best_of_three.three)
    ratios = [ours / theirs if max(ours, theirs) < math.inf else None for ours, theirs in parts]
    told = ["" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
    cells = [name, f"{system['rows']:,}", ", ".join(f"{who} {its}" for who, its in tried), milliseconds(look),
             milliseconds(times.set_up), milliseconds(times.first, times.warm),
             milliseconds(max(times.first - own.first, 0)) if own else "", milliseconds(times.third),
             f"{who} {best.its}", milliseconds(best.first, best.warm), milliseconds(best.third), *told[:2],
             told[2] + (f" ({who_of_three})" if told[2] and who_of_three != who else "")]
    return cells, ratios, (system["rows"], look)


def timed_text(systems, costs):
    every = [timed_line(name, system, costs) for name, system in groups(systems)]
    rows, failures = [line for line in every if isinstance(line, tuple)], [line for line in every if isinstance(line, str)]
    heads = ["system", "rows", "tried, with the iterations of each last run", "look", "set-up", "first", "of it lost", "third",
             "best candidate", "its first", "its third", "ratio", "of the third", "of three"]
    text = ["Milliseconds. The first solve includes the set-up, and the set-up the look at the matrix. What is lost is what the "
            "first solve took beyond the last candidate alone. The best candidate is that with the shortest first solve; the last "
            "ratio is that of the set-up and three solves together, with the best one for these in brackets if it is another one. "
            "† marks a first use that took so long that there was no further run.", "",
            "| " + " | ".join(heads) + " |", "|:--|--:|:--|--:|--:|--:|--:|--:|:--|--:|--:|--:|--:|--:|"]
    text += ["| " + " | ".join(cells) + " |" for cells, _, _ in rows]
    known = [[ratios[k] for _, ratios, _ in rows if ratios[k]] for k in range(3)]
    within = [f"{sum(ratio <= limit for ratio in ratios)} of {len(ratios)}" for ratios, limit in zip(known, (1.5, 1.15, 1.15))]
    means = [math.exp(sum(map(math.log, ratios)) / max(len(ratios), 1)) for ratios in known]
    longest = max(rows, key=lambda line: line[2][1])
    text += ["", f"The first solve is within 1.5 of the best on {within[0]} systems, the third one within 1.15 on {within[1]}, and "
             f"three together within 1.15 on {within[2]}; the geometric means are {means[0]:.2f}, {means[1]:.2f} and "
             f"{means[2]:.2f}. The longest look took {milliseconds(longest[2][1])} ms, at {longest[2][0]:,} rows.", ""]
    text += [f"Where auto fails: {'; '.join(failures) or 'nowhere'}.", ""]
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--command", required=True)
    parser.add_argument("--times", action="store_true", help="by seconds rather than by counted costs")
    arguments = parser.parse_args()
    systems, head = read(arguments.runs)
    costs = Costs(head["backend"])
    where = (f"backend {head['backend']}, {head['ranks']} rank{'s' * (head['ranks'] > 1)}, PETSc {head['petsc']}, "
             f"commit {head['commit'].split('-')[0]}, {head['date']}")
    if arguments.times:
        machine = f"{head['device']}, driver {head['driver']}" if head.get("driver") else head["device"]
        ranks = f", on {head['ranks']} ranks" * (head["ranks"] > 1)
        text = [f"# What auto takes, and what the best of its candidates took{ranks}", "",
                f"{arguments.command}; {machine}, {where}.", ""]
        with open(arguments.output, "w", encoding="utf-8") as f:
            f.write("\n".join(text + timed_text(systems, costs)))
        return
    every = [line(re.sub(r".*/|\.petsc(\.[gx]z)?$", "", name), system, costs) for name, system in systems.items()]
    rows = [row for row in every if row]
    geometric = math.exp(sum(math.log(ratio) for _, ratio, _ in rows) / len(rows))
    heads = ["system", "rows", "candidates with the iterations of each last run", "first solve", "of it lost", "best candidate",
             "its solve", "ratio", "ratio of the next solve"]
    text = ["# What auto takes, and what the best of its candidates would have cost", "", f"{arguments.command}; {where}.", "",
            "Costs are counted in iterations with jacobi, set-ups included; what is lost is what the first solve took beyond the "
            "last candidate alone. The next solve has the set-up already.", "",
            "| " + " | ".join(heads) + " |", "|:--|--:|:--|--:|--:|:--|--:|--:|--:|"]
    text += ["| " + " | ".join(cells) + " |" for cells, _, _ in rows]
    text += ["", f"Of {len(rows)} systems the first solve is within 1.5 of the best on {sum(r <= 1.5 for _, r, _ in rows)}, the "
             f"next one within 1.15 on {sum(r <= 1.15 for _, _, r in rows)}; the geometric mean of the first ratios is "
             f"{geometric:.2f}.", ""]
    with open(arguments.output, "w", encoding="utf-8") as f:
        f.write("\n".join(text))


if __name__ == "__main__":
    main()
