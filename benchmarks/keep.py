#!/usr/bin/env python3
"""Keeps a run of finepc_bench as one small table, and reads it again:

    keep.py run.json [more.json ..] -o results/NAME.csv --command "finepc_bench ..." [--histories SYSTEM,..]

A line of comment says what made the table, further ones the commands, then comes a row for each set and system, with the columns
that scripts and pages read and without those that nothing is in. Residual histories are kept of the named systems alone, with at
most 100 points. Several runs with the same machine and commit become one table. read() takes the JSON as well."""
import argparse
import csv
import dataclasses
import json
import os
import re

POINTS = 100  # of a history
OURS = re.compile("[A-Z]*(?:FSAI|BISAI|RRB|CMATCH)")  # events of finepc's types
# Columns, and what makes them of a result in the JSON: a key, or a function of the result
COLUMNS = {
    "set": "label", "options": "options", "status": "status", "note": "note", "ksp_type": "ksp_type", "pc_type": "pc_type",
    "first_setup_s": lambda r: r["first"]["setup_s"] if "first" in r else None,
    "setup_s": "setup_s", "solve_s": "solve_s", "total_s": "total_s",
    "warm": lambda r: len(r["warm"]),
    "warm_min_s": lambda r: min(totals(r), default=None), "warm_max_s": lambda r: max(totals(r), default=None),
    "again_s": lambda r: min((run["solve_again_s"] for run in r["warm"] if run.get("solve_again_s")), default=None),
    "refill_s": lambda r: min(r["refill_s"], default=None), "setup_j": "setup_j", "solve_j": "solve_j",
    "iterations": "iterations", "true_residual": "true_residual", "iteration_s": "iteration_s",
    "iteration_floor": "iteration_floor_fraction", "density": "density", "complexity": "complexity", "apply_s": "apply_s",
    "apply_bytes": "apply_bytes", "apply_floor": "apply_floor_fraction", "memory_bytes": "memory_bytes",
    "columns": "columns", "columns_iterations": "columns_iterations", "columns_iteration_s": "columns_iteration_s",
    "columns_over_one": "columns_over_one", "columns_true_residual": "columns_true_residual",
    "communication": "communication", "exchange_s": "exchange_s", "sum_s": "sum_s",
    "events": lambda r: " ".join(f"{e['name']}={e['s']:.3g}" for e in r.get("events", []) if OURS.match(e["name"])),
    "history_stride": "history_stride", "history": "history",
}
TEXTS = {"system", "kind", "set", "options", "status", "note", "ksp_type", "pc_type", "communication", "events"}
WHOLE = {"rows", "nnz", "warm", "iterations", "columns", "columns_iterations", "history_stride"}
# The first line, as finepc_bench prints it above its tables; what finepc_bench does not print stands behind the date.
HEAD = re.compile(r"(?P<program>\w+): backend (?P<backend>\w+), (?P<device>.*?)(?:, driver (?P<driver>[\d.]+))?"
                  r", (?P<ranks>\d+) ranks?(?:, copy (?P<copy>\d+) GB/s)?, PETSc (?P<petsc>[\d.]+), commit (?P<commit>[\w-]+)"
                  r", (?P<date>[\dTZ:-]+)(?:; true residual (?P<rtol>\S+), (?P<repeats>\d+) warm runs)?")


def totals(result):
    """Set-up and solve of each warm run."""
    return [run["setup_s"] + run["solve_s"] for run in result["warm"]]


@dataclasses.dataclass
class Report:
    head: str       # the line that says where the figures come from
    commands: list
    rows: list      # of dictionaries with system, kind, rows, nnz and COLUMNS; None is what was not measured

    def __getattr__(self, name):
        """What the head says: program, backend, device, driver, ranks, petsc, commit, date, rtol, repeats."""
        match = HEAD.match(self.head)
        if name.startswith("_") or not match or name not in match.groupdict():
            raise AttributeError(name)
        text = match[name]
        return {"ranks": int, "repeats": int, "rtol": float}.get(name, str)(text) if text else ""

    @property
    def systems(self):
        """name -> its rows"""
        found = {}
        for row in self.rows:
            found.setdefault(row["system"], []).append(row)
        return found

    @property
    def machine(self):
        """The device and its driver, if it has one."""
        return self.device + (f", driver {self.driver}" if self.driver else "")

    @property
    def made_with(self):
        """The machine, PETSc and the commit."""
        return f"{self.machine}, PETSc {self.petsc}, commit {self.commit}"


def thinned(result):
    """The stride and the values of a history with few points."""
    every = -(-len(result["history"]) // POINTS) or 1
    return result["history_stride"] * every, result["history"][::every]


def of_json(data):
    """The report that finepc_bench has written as JSON."""
    parts = [f"{data['program']}: backend {data['backend']}", data["device"], f"driver {data['driver']}" if data["driver"] else "",
             f"{data['ranks']} rank{'s' if data['ranks'] > 1 else ''}",
             f"copy {data['copy_GBps']:.0f} GB/s" if data["copy_GBps"] else "", f"PETSc {data['petsc']}",
             f"commit {data['commit']}", f"{data['date']}; true residual {data['true_rtol']:g}, {data['repeats']} warm runs"]
    head, rows = ", ".join(filter(None, parts)), []
    for system in data["systems"]:
        for result in system["results"]:
            row = {"system": system["name"], "kind": system["kind"], "rows": system["rows"], "nnz": system["nnz"]}
            for name, how in COLUMNS.items():
                row[name] = how(result) if callable(how) else result.get(how)
            row["history_stride"], row["history"] = thinned(result)
            rows.append(row)
    return Report(head, [], rows)


def read(path):
    """A kept table, or the JSON of a run."""
    with open(path, encoding="utf-8", newline="") as file:
        if path.endswith(".json"):
            return of_json(json.load(file))
        lines = file.read().splitlines()
    comments = [line[2:] for line in lines if line.startswith("# ")]
    report = Report(comments[0], comments[1:], [])
    for cells in csv.DictReader(lines[len(comments):]):
        row = dict.fromkeys(["system", "kind", "rows", "nnz", *COLUMNS])
        row.update({name: value(name, text) for name, text in cells.items()})
        for name in TEXTS:
            row[name] = row[name] or ""
        report.rows.append(row)
    return report


def value(name, text):
    if name in TEXTS:
        return text
    if name == "history":
        return [float(part) for part in text.split()]
    return None if not text else int(text) if name in WHOLE else float(text)


def cell(name, content):
    """What stands for a value in the table: the nine digits of the JSON, and six of a history."""
    if name == "history":
        return " ".join(f"{part:.6g}" for part in content if part is not None)
    if content is None or (content == 0 and name not in ("warm", "iterations", *TEXTS)):
        return ""
    if name in TEXTS or name in WHOLE:
        return " ".join(str(content).split())
    return f"{content:.9g}"


def write(report, path, histories=()):
    names = ["system", "kind", "rows", "nnz", *COLUMNS]
    table = []
    for row in report.rows:
        keeps = row["system"] in histories
        table.append([cell(name, row[name]) if keeps or not name.startswith("history") else "" for name in names])
    used = [k for k in range(len(names)) if any(cells[k] for cells in table)]
    with open(path, "w", encoding="utf-8", newline="") as file:
        for line in (report.head, *report.commands):
            file.write(f"# {line}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([names[k] for k in used])
        writer.writerows([[cells[k] for k in used] for cells in table])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", nargs="+")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--command", action="append", required=True, help="what was run, without the folders of a machine")
    parser.add_argument("--histories", default="", help="systems whose residual histories are kept")
    options = parser.parse_args()
    whole, *others = map(read, options.json)
    for other in others:
        if (other.machine, other.commit, other.ranks, other.rtol) != (whole.machine, whole.commit, whole.ranks, whole.rtol):
            parser.error(f"{other.head} is not made as {whole.head}")
        whole.rows += other.rows
    whole.commands = options.command
    write(whole, options.output, options.histories.split(","))
    print(f"{options.output}: {len(whole.rows)} rows, {os.path.getsize(options.output)} bytes")


if __name__ == "__main__":
    main()
