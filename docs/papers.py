"""Tables of docs/papers: what a paper reports, and what finepc gives, from docs/tables/papers.tsv and benchmarks/results."""
import math
import os
import re

import results

FILES = r"\b(?:paper_\w+|kernels|rrb_kernels|rrb_levels|ranks_model)\b"
PAPERS = ("afsai", "bisai", "cmatch", "rrb", "sfsai")
SHOWN = ("system", "set", "its", "set-up ms", "solve ms", "us/it", "set-up J", "solve J", "density", "complexity", "status")


CUBE = "elasticity3d_tets:40x39x39:1e3:4"
# The host beside the GPU: words, and what value() takes: on the host, on the GPU with PETSc's solver, and with one of finepc's
OVER_HOST = [("set-up and solve with `sfsai`, 16 cores: elasticity on tetrahedra, 0.19 million rows",
              f"paper_sfsai_host {CUBE} tets total_s * 1e3",
              f"paper_sfsai_parameters {CUBE} tets-cg total_s * 1e3", f"paper_sfsai_parameters {CUBE} tets total_s * 1e3"),
             ("set-up and solve with `rrb`, one core: 2D Poisson, 2047²",
              "paper_rrb_host poisson2d5:2047 rrbcg-natural-l12 total_s * 1e3", "",
              "paper_rrb_sizes poisson2d5:2047 rrbcg-natural-l12 total_s * 1e3")]
for system, words in (("elasticity3d_tets:156x155x155:1e3:8", "elasticity on tetrahedra, 11.4 million rows, 45 entries in each"),
                      ("elasticity3d:69x129x156:1e3:8", "elasticity, 4.2 million rows, 79 entries in each"),
                      ("spe10_elements", "SPE10 by trilinear elements, 3.4 million rows, 27 entries in each")):
    OVER_HOST.insert(0, (f"100 iterations with `jacobi`, 16 cores: {words}", *(
        f"paper_afsai_jacobi100{where} {system} {solver}-jacobi100 solve_s * 1e3"
        for where, solver in (("_host", "cg"), ("", "cg"), ("", "cgfused")))))


class Model:
    """What benchmarks/results/ranks_model.md says of cgfused with adaptive factors that reach other ranks, as a function."""
    def __init__(self, root):
        with open(f"{root}/benchmarks/results/ranks_model.md", encoding="utf-8") as file:
            self.text = file.read()
        # us of an iteration on one GPU, for 121³ and 201³ unknowns, and what is fitted to two, with kernels and with messages
        one = [self.number(rf"\| {side}³ \| `[^`]*-pc_type afsai[^`]*` \| 3 \| (\d+) \(1\.00\)") for side in (121, 201)]
        self.row = (one[1] - one[0]) / (201**3 - 121**3)
        self.launches = one[0] - 121**3 * self.row
        self.kernels = [self.number(rf"Kernels write to the other GPU .*{words} ([\d.]+) us") for words in
                        ("a sum over two ranks", "a product hides")]
        self.messages = [self.number(rf"Exchanges are NCCL's messages .*{words} ([\d.]+) us") for words in
                         ("a sum over two ranks", "a product hides", r"a product hides [\d.]+ us and")]

    def number(self, pattern):
        return float(re.search(pattern, self.text)[1])

    def assumed(self, words):
        return self.number(rf"The model assumes: .*\b{re.escape(words)}: (\d+(?:\.\d+)?)")

    def exchange(self, size, messages, machines):
        """us of an exchange of so many numbers in double precision."""
        if machines == 1:
            latency, bandwidth = "us of an exchange within a machine", "GB/s between GPUs of a machine"
        else:
            latency, bandwidth = "us of a message between machines", "GB/s between machines, a GPU"
        return (1 if machines == 1 else messages) * self.assumed(latency) + 8e-3 * size / self.assumed(bandwidth)

    def iteration(self, rows, gpus):
        """us of an iteration with so many rows on each GPU, in cubes with 7 points."""
        own = self.launches + rows * self.row
        if gpus == 1:
            return own
        machines = math.ceil(gpus / self.assumed("gpus of a machine"))
        if machines == 1:
            time = own + 2 * self.kernels[0] + 3 * self.kernels[1]
        else:
            time = own + 3 * (self.messages[1] + 1e-6 * rows * self.messages[2]) + 2 * (
                self.messages[0] + self.assumed("us of a sum for each doubling of machines") * math.log2(machines))
        face, hidden = rows**(2 / 3), own / 5
        layers = self.assumed("layers of G that are exchanged")
        exchanges = [self.exchange(6 * face, 6, machines)] + 2 * [self.exchange(3 * face * layers, 3, machines)]
        return time + (sum(max(0.0, exchange - hidden) for exchange in exchanges) if gpus > 2 else 0)

    def half_efficient(self, entries):
        """The largest number of GPUs that share a matrix of so many entries with an efficiency of a half, against one GPU."""
        rows = entries / 7
        alone, gpus = self.iteration(rows, 1), 1
        while alone >= 0.5 * 2 * gpus * self.iteration(rows / (2 * gpus), 2 * gpus):
            gpus *= 2
        return max(p for p in range(gpus, 2 * gpus) if alone >= 0.5 * p * self.iteration(rows / p, p))


# Of a solve that has not converged these are bounds from below.
GROW = ("solve_s", "total_s", "iterations")


def unfinished(row, key):
    """Whether a number would be larger if the solve had converged. Sets of a hundred iterations are to end there."""
    return row["status"] == "diverged" and key in GROW and not row["set"].endswith("100")


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
        return "over " if row and unfinished(row, part.split()[3]) else ""

    def once(self, text):
        """ " (once)" where a time is of a run that was not repeated."""
        rows = [self.row(part) for part in text.split(" / ") if len(part.split()) > 3 and part.split()[3].endswith("_s")]
        return " (once)" if any(row and not row["warm"] for row in rows) else ""

    def value(self, text):
        """What a cell of the column finepc means, or None where it was not measured."""
        found, factors = [], 1.0
        if text.startswith("model "):
            return Model(self.root).half_efficient(int(text.split()[1]))
        for part in text.split(" / "):
            if part.startswith("="):
                return eval(re.fullmatch(r"=([\d.+*/()]+) \w+", part).group(1), {})  # numbers with +, * and / between them
            row, key = self.row(part), part.split()[3]
            if row is None:
                return None
            events = dict(event.split("=") for event in row["events"].split())
            value = events.get(key[7:]) if key.startswith("events.") else row[key]
            if value is None or (found and unfinished(row, key)):
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
    return f"{shown} / **{measured.over(ours)}{number(value)}**{measured.once(ours)}{ratio}"


def runs_of(measured, names):
    """All runs of result files, with what is not of interest to a reader left out."""
    rows = []
    for report in filter(None, map(measured.report, names)):
        where = f"{report.ranks} rank{'s' if report.ranks > 1 else ''} of a host" if report.backend == "host" else \
            f"{report.ranks} GPU{'s' if report.ranks > 1 else ''}"
        rows += [[where] + [results.SHOWN_COLUMNS[head](row) for head in SHOWN] for row in report.rows]
        for shown, row in zip(rows[-len(report.rows):], report.rows):
            shown[-1] += ", not repeated" if row["solve_s"] and not row["warm"] else ""
    used = [k for k in range(len(SHOWN) + 1) if any(row[k] for row in rows)]
    heads = [("on", *SHOWN)[k] for k in used]
    return results.table_of(heads, [[row[k] for k in used] for row in rows]) if rows else "Not measured.\n"


def reasons(rows):
    """Why cells of a table have no number of finepc: the columns if it is so in all lines, or else the lines and the columns."""
    found, every = {}, list(dict.fromkeys(row[2] for row in rows))
    for row in rows:
        if row[5].startswith("not: "):
            found.setdefault(row[5][5:], []).append(row)
    for why, cells in found.items():
        lines, columns = (list(dict.fromkeys(row[k] for row in cells)) for k in (2, 3))
        heads = ", ".join(re.sub(r", (ms|s|us)$", "", column) for column in columns)
        if lines == every and len(lines) > 1 and all(columns):
            found[why] = heads
        else:
            only = len(cells) < len([row for row in rows if row[2] in lines])
            found[why] = "; ".join(lines) + (f": {heads}" if only else "")
    return found


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
        elif any(row[3] for row in rows):
            columns, lines = list(dict.fromkeys(row[3] for row in rows)), list(dict.fromkeys(row[2] for row in rows))
            cells = {(row[2], row[3]): cell(measured, row) for row in rows}
            body = [[line] + [cells.get((line, column), "") for column in columns] for line in lines]
            text.append(results.table_of([""] + columns, body))
        text += [f"Not reproduced ({what}): {why}.\n" for why, what in reasons(rows).items()]
        if files:
            text.append(f"```{{made}} {' '.join(files)}\n```\n")
    return "\n".join(text)


def over_host(root):
    """How many times as long the host takes."""
    measured, rows, used = Results(root), [], []
    for words, *runs in OVER_HOST:
        times = [measured.value(run) if run else None for run in runs]
        if times[0] and times[2]:
            shown = [number(time) + measured.once(run) if time else "" for time, run in zip(times, runs)]
            rows.append([words] + shown + [f"**{number(times[0] / times[2])}**"])
            used += [run.split()[0] for run in runs if run]
    heads = ["ms", "the host", "GPU, PETSc's `cg`", "GPU, `cgfused` or `rrbcg`", "host over GPU"]
    return results.table_of(heads, rows) + f"\n```{{made}} {' '.join(dict.fromkeys(used))}\n```\n" if rows else "Not measured.\n"


def fragments(root):
    return {"over_host": over_host(root)} | {f"paper_{paper}": fragment(root, paper) for paper in PAPERS}
