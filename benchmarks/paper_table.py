#!/usr/bin/env python3
"""The tables of the block-ISAI paper (Ma, Hu, Yuan, Liu 2021) out of benchmark runs, one per system: T_p, T_total and iterations
by option set, and the set-up by events of PETSc's log where the run had -breakdown.

    paper_table.py results.json [more.json ...] [-o tables.md]

T_p: 30 applications of the preconditioner, timed apart; T_total: the solve, factors given. Iterations are compared with those of
block ILU(0) and exact triangular solves: the first of `baij-ilu`, `block-ilu` and `bsrsv2` that converged, which have the same
preconditioner. An event counts the events inside it, too. Sets of further files are added to the systems of the same name."""
import argparse
import json
import sys

from made_with import made_with

APPLIES = 30
BLOCK_ILU = ("baij-ilu", "block-ilu", "bsrsv2")  # the same factor, the same solves
FIRST = ("baij-ilu", "block-ilu", "aij-ilu", "bsrsv2")  # columns; the others follow as they were run


def number(value, digits=3):
    """As many digits as say something, without an exponent."""
    if not value:
        return ""
    decimals = max(0, digits - len(str(int(abs(value)))))
    return f"{value:.{decimals}f}"


def percent(fraction):
    return f"{100 * fraction:.0f}" if fraction else ""


def solved(result):
    return result["status"] in ("ok", "missed")


def event(result, name):
    return next((e["s"] for e in result.get("events", []) if e["name"] == name), 0)


def load(paths):
    """The reports, and their systems, each with its results from all of them in the order of the columns."""
    reports = [json.load(open(path)) for path in paths]
    systems = {}
    for report in reports:
        for system in report["systems"]:
            entry = systems.setdefault(system["name"], {**system, "results": {}})
            entry["results"].update({result["label"]: result for result in system["results"]})
    for system in systems.values():
        results = system["results"]
        labels = [label for label in FIRST if label in results] + [label for label in results if label not in FIRST]
        system["results"] = [results[label] for label in labels]
    return reports, list(systems.values())


def head(report):
    return f"{made_with(report)}, relative tolerance {report['true_rtol']:g}."


def rows(system):
    results = system["results"]
    by_label = {r["label"]: r for r in results if solved(r)}
    exact = next((label for label in BLOCK_ILU if label in by_label), "")
    cusparse = by_label["aij-ilu"]["solve_s"] if "aij-ilu" in by_label else 0

    def row(title, value):
        return [title] + [value(r) if solved(r) else "" for r in results]

    def over(seconds, r):
        return number(seconds / r["iteration_s"]) if r["iteration_s"] else ""

    yield row("T_p ms", lambda r: number(1e3 * APPLIES * r["apply_s"]))
    yield row("T_total ms", lambda r: number(1e3 * r["solve_s"]))
    yield row("iterations", lambda r: str(r["iterations"]))
    if exact:
        yield row(f"iterations / {exact}", lambda r: f"{r['iterations'] / by_label[exact]['iterations']:.2f}")
        yield row(f"{exact}'s T_total / T_total", lambda r: number(by_label[exact]["solve_s"] / r["solve_s"]))
    if cusparse:
        yield row("aij-ilu's T_total / T_total", lambda r: number(cusparse / r["solve_s"]))
    yield row("set-up ms", lambda r: number(1e3 * r["setup_s"]))
    yield row("set-up in iterations", lambda r: over(r["setup_s"], r))
    yield row("NL and NU in iterations", lambda r: over(event(r, "BISAIInvert"), r))
    yield row("apply, % of the copy bandwidth", lambda r: percent(r["apply_floor_fraction"]))
    yield row("warm runs", lambda r: str(len(r["warm"])) if r["warm"] else "0, the first use")
    yield ["status"] + [r["status"] if r["status"] == "ok" else f"{r['status']}: {r['note']}" for r in results]


def breakdown(system):
    """bisai's own events first."""
    names = list(dict.fromkeys(e["name"] for result in system["results"] for e in result.get("events", [])))
    for name in sorted(names, key=lambda name: not name.startswith("BISAI")):
        times = [event(result, name) for result in system["results"]]
        if max(times) >= 1e-5:
            yield [name] + [number(1e3 * t) for t in times]


def logged(system):
    """Which set-ups the events are of; files without `logged_setups` have the events of one set-up."""
    counts = sorted({r["logged_setups"] for r in system["results"] if r.get("events") and "logged_setups" in r})
    return f"the fastest of {' or '.join(map(str, counts))} warm set-ups" if counts else "one set-up"


def table(head, body):
    lines = ["| " + " | ".join(head) + " |", "|:--|" + "--:|" * (len(head) - 1)]
    return lines + ["| " + " | ".join(cells) + " |" for cells in body]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", nargs="+")
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    reports, systems = load(args.json)
    lines = list(dict.fromkeys(head(report) for report in reports))
    for system in systems:
        labels = [r["label"] for r in system["results"]]
        lines += ["", f"## {system['name']}", f"{system['rows']} rows, {system['nnz']} nonzeros", ""]
        lines += table([""] + labels, rows(system))
        body = list(breakdown(system))
        if body:
            lines += ["", f"Set-up by events, ms. These, and NL and NU above, are of {logged(system)}, with the log on.", ""]
            lines += table([""] + labels, body)
    text = "\n".join(lines) + "\n"
    if args.output:
        open(args.output, "w").write(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
