#!/usr/bin/env python3
"""The tables of the block-ISAI paper (Ma, Hu, Yuan, Liu 2021) out of a benchmark run, one per system: T_p, T_total and iterations by option
set, and the set-up by events of PETSc's log where the run had -breakdown.

    paper_table.py results.json [-o tables.md]

T_p: 30 applications of the preconditioner, timed apart; T_total: the solve, factors given. Iterations are compared with those of the first
set, and T_total with that of `aij-ilu`. An event counts the events inside it, too."""
import argparse
import json
import sys

APPLIES = 30


def number(value, digits=3):
    """As many digits as say something, without an exponent."""
    if not value:
        return ""
    decimals = max(0, digits - len(str(int(abs(value)))))
    return f"{value:.{decimals}f}"


def event(result, name):
    return next((e["s"] for e in result.get("events", []) if e["name"] == name), 0)


def rows(system):
    results = system["results"]
    solved = [r["status"] in ("ok", "missed") for r in results]
    exact = results[0]["iterations"] if solved[0] else 0
    cusparse = next((r["solve_s"] for r, ok in zip(results, solved) if ok and r["label"] == "aij-ilu"), 0)

    def row(title, value):
        return [title] + [value(r) if ok else "" for r, ok in zip(results, solved)]

    yield row("T_p ms", lambda r: number(1e3 * APPLIES * r["apply_s"]))
    yield row("T_total ms", lambda r: number(1e3 * r["solve_s"]))
    yield row("iterations", lambda r: str(r["iterations"]))
    yield row("iterations / first", lambda r: f"{r['iterations'] / exact:.2f}" if exact else "")
    yield row("aij-ilu's T_total / T_total", lambda r: number(cusparse / r["solve_s"]) if cusparse else "")
    yield row("set-up ms", lambda r: number(1e3 * r["setup_s"]))
    yield row("set-up in iterations", lambda r: number(r["setup_s"] / r["iteration_s"]) if r["iteration_s"] else "")
    yield row("NL and NU in iterations", lambda r: number(event(r, "BISAIInvert") / r["iteration_s"]) if r["iteration_s"] else "")
    yield row("apply, % of the copy bandwidth", lambda r: f"{100 * r['apply_floor_fraction']:.0f}" if r["apply_floor_fraction"] else "")
    yield ["status"] + [r["status"] if r["status"] == "ok" else f"{r['status']}: {r['note']}" for r in results]


def breakdown(system):
    names = []
    for result in system["results"]:
        names += [e["name"] for e in result.get("events", []) if e["name"] not in names]
    for name in names:
        times = [event(result, name) for result in system["results"]]
        if max(times) >= 1e-5:
            yield [name] + [number(1e3 * t) for t in times]


def table(head, body):
    lines = ["| " + " | ".join(head) + " |", "|:--|" + "--:|" * (len(head) - 1)]
    return lines + ["| " + " | ".join(cells) + " |" for cells in body]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json")
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    report = json.load(open(args.json))
    driver = f", driver {report['driver']}" if report["driver"] else ""
    lines = [f"{report['device']}{driver}, PETSc {report['petsc']}, commit {report['commit']}, relative tolerance {report['true_rtol']:g}."]
    for system in report["systems"]:
        labels = [r["label"] for r in system["results"]]
        lines += ["", f"## {system['name']}", f"{system['rows']} rows, {system['nnz']} nonzeros", ""] + table([""] + labels, rows(system))
        body = list(breakdown(system))
        if body:
            lines += ["", "Set-up by events, ms:", ""] + table([""] + labels, body)
    text = "\n".join(lines) + "\n"
    if args.output:
        open(args.output, "w").write(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
