"""Tables of docs/papers: what a paper reports, and what finepc gives, from docs/tables/papers.tsv and benchmarks/results."""
import os
import re

import results

FILES = r"\b(?:paper_\w+|kernels|rrb_kernels|rrb_levels|bisai)\b"
PAPERS = ("afsai", "bisai", "cmatch", "rrb", "sfsai")
SHOWN = ("system", "set", "its", "set-up ms", "solve ms", "us/it", "density", "complexity", "status")


CUBE = "elasticity3d_tets:40x39x39:1e3:4"
# The host beside the GPU: words, and what value() takes: on the host, on the GPU with PETSc's solver, and with one of finepc's
OVER_HOST = [("set-up and solve with `sfsai`: elasticity on tetrahedra, 0.19 million rows",
              f"paper_sfsai_host {CUBE} tets total_s * 1e3",
              f"paper_sfsai_parameters {CUBE} tets-cg total_s * 1e3", f"paper_sfsai_parameters {CUBE} tets total_s * 1e3"),
             ("set-up and solve with `rrb`: 2D Poisson, 2047², one core",
              "paper_rrb_host poisson2d5:2047 rrbcg-natural-l12 total_s * 1e3", "",
              "paper_rrb_sizes poisson2d5:2047 rrbcg-natural-l12 total_s * 1e3")]
for system, words in (("elasticity3d_tets:156x155x155:1e3:8", "elasticity on tetrahedra, 11.4 million rows, 45 entries in each"),
                      ("elasticity3d:69x129x156:1e3:8", "elasticity, 4.2 million rows, 79 entries in each"),
                      ("spe10_elements", "SPE10 by trilinear elements, 3.4 million rows, 27 entries in each")):
    OVER_HOST.insert(0, (f"100 iterations with `jacobi`: {words}", *(
        f"paper_afsai_jacobi100{where} {system} {solver}-jacobi100 iteration_s * 1e5"
        for where, solver in (("_host", "cg"), ("", "cg"), ("", "cgfused")))))


# Of a solve that has not converged these are bounds from below.
GROW = ("solve_s", "total_s", "iterations")


class Results:
    def __init__(self, root):
        self.root, self.reports = root, {}

    def report(self, name):
        """A result file, or None where it was not measured."""
        if name not in self.reports:
            path = f"{self.root}/benchmarks/results/{name}.csv"
            self.reports[name] = results.keep.read(path) if os.path.exists(path) else None
        return self.reports[name]

    def row(self, part):
        """The run that a part names, or None where it was not measured."""
        name, system, label = part.split()[:3]
        report = None if part.startswith("=") else self.report(name)
        rows = [row for row in report.rows if (row["system"], row["set"]) == (system, label)] if report else []
        return rows[0] if rows and rows[0]["status"] not in ("failed", "time limit") else None

    def over(self, text):
        """ "over " where a solve that has not converged would have taken longer."""
        part = text.split(" / ")[0]
        row = self.row(part) if len(part.split()) > 3 else None
        return "over " if row and row["status"] == "diverged" and part.split()[3] in GROW else ""

    def value(self, text):
        """What a cell of the column finepc means, or None where it was not measured."""
        found, factors = [], 1.0
        for part in text.split(" / "):
            if part.startswith("="):
                return eval(re.fullmatch(r"=([\d.+*/]+) \w+", part).group(1), {})  # numbers with +, * and / between them
            row, key = self.row(part), part.split()[3]
            if row is None:
                return None
            events = dict(event.split("=") for event in row["events"].split())
            value = events.get(key[7:]) if key.startswith("events.") else row[key]
            if value is None:
                return None
            found.append(float(value))
            factors *= float(part.split()[5]) if "*" in part else 1
        return factors * found[0] / (found[1] if len(found) > 1 else 1)


def number(value):
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def cell(measured, row):
    """The paper's number, finepc's, and for times how many times shorter finepc's is."""
    _, _, _, column, theirs, ours = row
    shown = number(int(theirs)) if theirs.isdigit() else theirs
    if ours.startswith("not:"):
        return shown or "plot"
    value = measured.value(ours) if ours else None
    if value is None:
        return f"{shown} / –"
    ratio = ""
    if re.search(r", (ms|s|us)$", column) and re.fullmatch(r"[\d.]+", theirs) and value:
        ratio = f" ({number(float(theirs) / value)} ×)"
    return f"{shown} / **{measured.over(ours)}{number(value)}**{ratio}"


def runs_of(measured, names):
    """All runs of result files, with what is not of interest to a reader left out."""
    rows = []
    for report in filter(None, map(measured.report, names)):
        where = f"{report.ranks} rank{'s' if report.ranks > 1 else ''} of a host" if report.backend == "host" else \
            f"{report.ranks} GPU{'s' if report.ranks > 1 else ''}"
        rows += [[where] + [results.SHOWN_COLUMNS[head](row) for head in SHOWN] for row in report.rows]
    used = [k for k in range(len(SHOWN) + 1) if any(row[k] for row in rows)]
    heads = [("on", *SHOWN)[k] for k in used]
    return results.table_of(heads, [[row[k] for k in used] for row in rows]) if rows else "Not measured.\n"


def fragment(root, paper):
    measured, shows, text = Results(root), {}, []
    for row in results.kept(root, "papers")[1]:
        if row[0] == paper:
            shows.setdefault(row[1], []).append(row)
    for show, rows in shows.items():
        text.append(f"### {show[0].upper()}{show[1:]}\n")
        files = [name for row in rows for name in re.findall(FILES, row[5]) if not row[5].startswith("not: ")]
        files = [name for name in dict.fromkeys(files) if os.path.exists(f"{root}/benchmarks/results/{name}.csv")
                 or os.path.exists(f"{root}/benchmarks/results/{name}.md")]
        if rows[0][5].startswith("runs "):
            files = rows[0][5].split()[1:]
            text.append(runs_of(measured, files))
            files = [name for name in files if measured.report(name)]
        else:
            columns, lines = list(dict.fromkeys(row[3] for row in rows)), list(dict.fromkeys(row[2] for row in rows))
            cells = {(row[2], row[3]): cell(measured, row) for row in rows}
            body = [[line] + [cells.get((line, column), "") for column in columns] for line in lines]
            text.append(results.table_of([""] + columns, body))
        reasons = {}
        for row in rows:
            if row[5].startswith("not: "):
                reasons.setdefault(row[5][5:], []).append(row[2])
        text += [f"Not reproduced ({'; '.join(dict.fromkeys(what))}): {why}.\n" for why, what in reasons.items()]
        if files:
            text.append(f"```{{made}} {' '.join(files)}\n```\n")
    return "\n".join(text)


def over_host(root):
    """How many times as long the host takes."""
    measured, rows, used = Results(root), [], []
    for words, *runs in OVER_HOST:
        times = [measured.value(run) if run else None for run in runs]
        if times[0] and times[2]:
            rows.append([words] + [number(time) if time else "" for time in times] + [f"**{number(times[0] / times[2])}**"])
            used += [run.split()[0] for run in runs if run]
    heads = ["ms", "the host, 16 cores", "GPU, PETSc's `cg`", "GPU, `cgfused` or `rrbcg`", "host over GPU"]
    return results.table_of(heads, rows) + f"\n```{{made}} {' '.join(dict.fromkeys(used))}\n```\n" if rows else "Not measured.\n"


def fragments(root):
    return {"over_host": over_host(root)} | {f"paper_{paper}": fragment(root, paper) for paper in PAPERS}
