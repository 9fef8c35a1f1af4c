"""Pages, tables and plots from benchmarks/results. Nothing here is a number: all of them come from the files."""
import glob
import os
import re
import sys
from dataclasses import dataclass

import matplotlib

import manualpages

sys.path.append(f"{os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}/benchmarks")
import keep  # noqa: E402

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

# About tests of the program, not about what its users can expect of it.
NOT_FOR_USERS = {"device_tests"}

# What the decision page compares, all of it measured by benchmarks/which: name of the system, what it is, tolerance.
PROBLEMS = [
    ("poisson3d7:121", "3D Poisson, 121³ points, 7-point stencil", 1e-8),
    ("poisson3d7:201", "3D Poisson, 201³ points", 1e-8),
    ("jumps:121:1e4:8", "3D diffusion, 121³, jumps of 10⁴", 1e-8),
    ("spe10", "SPE10, reservoir, 1.12 million cells", 1e-8),
    ("poisson2d5:2047", "2D Poisson, 2047², 5-point stencil", 1e-8),
    ("elasticity3d:30:1e3:4", "elasticity, 30³ elements, jumps of 10³", 1e-8),
    ("elasticity3d:60", "elasticity, 60³ elements, one material, 0.67 million rows", 1e-8),
    ("elasticity3d:60:1e3:4", "the same, jumps of 10³", 1e-8),
    ("elasticity3d:100", "elasticity, 100³ elements, 3.06 million rows", 1e-8),
    ("bcsstk16", "bcsstk16, structure, 4,884 rows", 1e-8),
    ("bcsstk24", "bcsstk24, structure, 3,562 rows", 1e-8),
    ("s3rmt3m3", "s3rmt3m3, shell, 5,357 rows", 1e-8),
    ("ex15", "ex15, flow, 6,867 rows", 1e-8),
    ("block3d7:64:4", "4 coupled unknowns, 64³ points, not symmetric", 1e-8),
    ("cavity", "driven cavity, 300², blocks of 3, not symmetric", 1e-5),
    ("ex19", "PETSc's ex19, 300², blocks of 4, not symmetric", 1e-5),
]
TYPES = ["jacobi", "icc", "gamg", "cmatch", "afsai", "sfsai", "bisai", "rrb"]
SHOWN = {"icc": "icc / ilu", "jacobi": "jacobi / pbjacobi"}
KINDS = {"ilu": "icc", "bsrsv2": "icc", "pbjacobi": "jacobi"}  # a type that is shown in the column of another one
OURS = ["cmatch", "afsai", "sfsai", "bisai", "rrb"]
SPREAD = 0.05  # warm runs that differ by more are shown with the slowest of them
SOLVER_OF_FINEPC = {"cgfused", "rrbcg", "gmresfused"}
COLORS = {"jacobi": "#7f7f7f", "icc": "#8c564b", "gamg": "#000000", "cmatch": "#1f77b4", "afsai": "#d62728", "sfsai": "#ff7f0e",
          "bisai": "#9467bd", "rrb": "#2ca02c"}
MARKERS = {"jacobi": "o", "icc": "v", "gamg": "s", "cmatch": "D", "afsai": "^", "sfsai": "<", "bisai": "P", "rrb": "*"}


@dataclass
class Run:
    file: str
    commit: str
    system: str
    type: str
    solver: str
    label: str
    options: str
    result: dict

    rtol: float = 1e-8
    default: bool = False

    @property
    def ok(self):
        return self.result["status"] == "ok"

    @property
    def total(self):
        return 1e3 * self.result["total_s"] if self.result["total_s"] else float("inf")

    @property
    def warm(self):
        """Totals of the fastest and of the slowest warm run, in ms; none where the first use was the only one."""
        return [1e3 * self.result[key] for key in ("warm_min_s", "warm_max_s")] if self.result["warm"] else []

    @property
    def words(self):
        """The total; how long the slowest warm run took where they differ much; a mark for a first use."""
        text, warm = milliseconds(self.total), self.warm
        if not warm:
            return text + "†"
        return text + (f" to {milliseconds(warm[-1])}" if warm[-1] > (1 + SPREAD) * warm[0] else "")

    @property
    def failure(self):
        status = self.result["status"]
        if status == "failed" and re.search("memory|insufficient", self.result["note"], re.I):
            return "out of memory"
        return {"missed": "stopped early"}.get(status, status)


def load(root, name):
    return keep.read(f"{root}/benchmarks/results/{name}.csv")


def default_options(root):
    """Options of finepc's types with their defaults, as they stand in option sets."""
    return {f"{key} {value}" for page in manualpages.collect(root) if page.kind == "MC" for key, value, _ in page.keys if value}


def has_defaults(options, defaults):
    """Whether an option set has no more than the names of the types and options with their defaults."""
    rest = re.findall(r"(-\S+) ?((?!-[a-z])\S+)?", options)
    chosen = ("-ksp_type", "-pc_type", "-mat_type", "-ksp_pc_side")
    return all(key in chosen or f"{key} {value}" in defaults for key, value in rest)


def runs(root):
    """Every run of the comparison."""
    found, defaults = [], default_options(root)
    for path in sorted(glob.glob(f"{root}/benchmarks/results/which_*.csv")):
        name = os.path.basename(path)[:-4]
        report = load(root, name)
        for result in report.rows:
            # A set that has failed before its objects were made has no type.
            pc_type = result["pc_type"] or "".join(re.findall(r"-pc_type (\S+)", result["options"])[-1:])
            kind = KINDS.get(pc_type, pc_type)
            if kind in TYPES:
                found.append(Run(name, report.commit[:7], result["system"], kind, result["ksp_type"], result["set"],
                                 result["options"], result, report.rtol, has_defaults(result["options"], defaults)))
    return found


def compared(root):
    """problem -> type -> its runs, fastest first and failed ones last; those of finepc's solvers and of PETSc's together."""
    every, table = runs(root), {}
    for system, _, rtol in PROBLEMS:
        here = sorted((r for r in every if r.system == system and r.rtol == rtol), key=lambda r: (not r.ok, r.total))
        if not here:
            raise SystemExit(f"{system}: in no result file")
        table[system] = {kind: [r for r in here if r.type == kind] for kind in TYPES}
    return table


def problems(table):
    """(system, words) of the problems that were measured."""
    return [(system, words) for system, words, _ in PROBLEMS if system in table]


def fastest(found, ours):
    """The fastest run with a solver of finepc, or with one of PETSc."""
    fit = [r for r in found if (r.solver in SOLVER_OF_FINEPC) == ours]
    return fit[0] if fit else None


def milliseconds(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def cell(found, emphasis=False):
    """The time with the default options, that of the fastest option set, and how many sets were tried."""
    if not found:
        return "not measured"
    default = next((run for run in found if run.default), None)
    sets = len({run.options for run in found})
    if not found[0].ok:
        return f"{found[0].failure} ({sets})"
    first = "–" if default is None else default.words if default.ok else default.failure
    best = f"**{found[0].words}**" if emphasis else found[0].words
    return f"{first} / {best} ({sets})"


def table_of(heads, rows):
    return "\n".join("| " + " | ".join(row) + " |" for row in [heads, [":--"] * len(heads)] + rows) + "\n"


def winner(types):
    """The fastest run of a problem, or None."""
    return min((found[0] for found in types.values() if found and found[0].ok), key=lambda run: run.total, default=None)


def sources(chosen):
    """Where the figures of these runs come from, as one line."""
    return f"\n```{{made}} {' '.join(dict.fromkeys(run.file for run in chosen))}\n```\n"


def which_table(root):
    table, rows, used = compared(root), [], []
    for system, words in problems(table):
        first = winner(table[system])
        rows.append([words] + [cell(table[system][kind], first is not None and kind == first.type) for kind in TYPES])
        used += [run for found in table[system].values() for run in found[:1]]
    heads = ["problem"] + [f"`{SHOWN.get(kind, kind)}`" for kind in TYPES]
    return table_of(heads, rows) + "\n" + spread_words(table) + unfused_words(table) + sources(used)


def spread_words(table):
    """By how much the runs of one set differ, in words."""
    off = [(warm[-1] / warm[0] - 1, system) for system, types in table.items() for found in types.values() for run in found
           if run.ok and run.result["warm"] > 1 for warm in [run.warm]]
    if not off:
        return ""
    off.sort(key=lambda pair: pair[0])
    within = sum(share <= SPREAD for share, _ in off)
    return (f"Of {len(off):,} sets with two warm runs or more the slowest run took at most {100 * SPREAD:.0f} % longer than the "
            f"fastest in {within:,}, half of them at most {100 * off[len(off) // 2][0]:.1f} %, "
            f"and the worst {100 * off[-1][0]:.0f} % "
            f"(`{off[-1][1]}`).\n")


def unfused_words(table):
    """Which types were run with PETSc's solvers alone where others were run with one of finepc, in words."""
    systems = {}
    for system, types in table.items():
        ours = {kind: any(run.solver in SOLVER_OF_FINEPC for run in found) for kind, found in types.items() if found}
        names = ", ".join(f"`{SHOWN.get(kind, kind)}`" for kind in TYPES if kind in ours and not ours[kind])
        if names and any(ours.values()):
            systems.setdefault(names, []).append(f"`{system}`")
    parts = [f"{names} on {', '.join(found)}" for names, found in systems.items()]
    return f"Measured with solvers of PETSc alone: {'; '.join(parts)}.\n" if parts else ""


def which_fastest(root):
    """The fastest option set of each problem, with the spread of its runs, and the fastest of the other types."""
    table, rows, used = compared(root), [], []
    for system, words in problems(table):
        first = winner(table[system])
        if first is None:
            continue
        second = winner({kind: found for kind, found in table[system].items() if kind != first.type})
        times, warm = [milliseconds(1e3 * first.result[key]) for key in ("setup_s", "solve_s")], first.warm
        spread = f"{milliseconds(warm[0])} to {milliseconds(warm[-1])} ({first.result['warm']})" if warm else "first use alone"
        rows.append([words, f"`{first.options}`", str(first.result["iterations"]), *times, milliseconds(first.total), spread,
                     f"`{second.result['pc_type']}`, {milliseconds(second.total)}" if second else "none"])
        used += [run for run in (first, second) if run]
    heads = ["problem", "options", "iterations", "set-up, ms", "solve, ms", "total, ms", "warm runs, ms (their number)",
             "next type, ms"]
    return table_of(heads, rows) + sources(used)


def which_gamg(root):
    """PETSc's multigrid: the set-up, which is on the host, and the solve, on the GPU."""
    table, rows, used = compared(root), [], []
    for system, words in problems(table):
        found = table[system]["gamg"]
        if not found:
            continue
        first, modes = found[0], "yes" if system.startswith("elasticity3d") else "no"
        times = [milliseconds(1e3 * first.result[key]) for key in ("setup_s", "solve_s")] if first.ok else [first.failure, ""]
        rows.append([words, modes, f"`{first.options}`", str(first.result["iterations"]) if first.ok else "", *times,
                     milliseconds(first.total) if first.ok else "", "" if not first.ok else "warm" if first.warm else "first use"])
        used.append(first)
    heads = ["problem", "rigid body modes", "options", "iterations", "set-up on the host, ms", "solve, ms", "total, ms", ""]
    return table_of(heads, rows) + sources(used)


def kept(root, name):
    """A table of docs/tables, of figures of other programs that no file of benchmarks/results has: heads and rows."""
    with open(f"{root}/docs/tables/{name}.tsv", encoding="utf-8") as f:
        lines = [line.rstrip("\n").split("\t") for line in f if not line.startswith("#")]
    if any(len(line) != len(lines[0]) for line in lines):
        raise SystemExit(f"docs/tables/{name}.tsv: a row has not as many cells as the first one")
    return lines[0], lines[1:]


def one_h100_table(root):
    """finepc, AmgX and cuDSS on the same card and the same day."""
    heads, rows = kept(root, "one_h100")
    return table_of(["problem", "finepc, recommended"] + heads[3:], [row[1:] for row in rows])


def direct_table(root):
    """A direct solver beside finepc, for the systems that README.md shows."""
    rows = [[row[1], row[2].split()[0], row[6], row[7], row[8]] for row in kept(root, "one_h100")[1] if row[0] == "1"]
    return table_of(["ms, one H100", "finepc, set-up and solve", "cuDSS: first", "cuDSS: new values and a solve",
                     "cuDSS: another right-hand side"], rows)


def gpus_h100_table(root):
    """Totals by number of GPUs, each with what it consists of and the total on one GPU over it."""
    rows, one, weak = [], [], False
    for system, gpus, *figures in kept(root, "gpus_h100")[1]:
        jacobi, us, afsai_setup, afsai, afsai_us, setup, solve, cmatch = figures
        totals = [1e-3 * float(jacobi) * float(us), float(afsai_setup) + 1e-3 * float(afsai) * float(afsai_us),
                  float(setup) + float(solve)]
        if gpus == "1":
            one, weak = totals, system.endswith("a GPU")
        gains = [f"{100 * first / total:.0f} %" if weak else f"{first / total:.2f} times as fast"
                 for total, first in zip(totals, one)]
        words = [f"{jacobi} × {us} µs", f"{afsai_setup} + {afsai} × {afsai_us} µs", f"{setup} + {solve}; {cmatch} iterations"]
        rows.append([system, gpus] + [f"**{milliseconds(total)}**" + ("" if gpus == "1" else f", {gain}") + f" ({how})"
                                      for total, gain, how in zip(totals, gains, words)])
    heads = ["ms", "GPUs", "`jacobi` (iterations × an iteration)", "`afsai`, 7 steps (set-up + iterations × an iteration)"]
    return table_of(heads + ["`cmatch` (set-up + solve)"], rows)


def headline_table(root):
    """The rows of that table that README.md has: the fastest of finepc and of AmgX, and cuDSS."""
    rows = []
    for chosen, problem, finepc, _, classical, aggregation, *cudss in kept(root, "one_h100")[1]:
        if chosen != "1":
            continue
        time, _, how = finepc.partition(" ")
        amgx = [x for x in (classical, aggregation) if x != "fails"]
        amgx = min(amgx, key=lambda x: float(x.split()[0])).split()[0] + " ms" if amgx else "fails"
        direct = " / ".join(cudss) + " ms" if cudss[1] else cudss[0]
        rows.append([problem, f"{time} ms, {how}", amgx, direct])
    return table_of(["problem", "finepc", "AmgX 2.5", "cuDSS 1.0: first / new values / another right-hand side"], rows)


def measured_table(root, kind):
    """The fastest run of a type for each problem, beside the fastest of Jacobi where one was measured."""
    table, rows, used = compared(root), [], []
    for system, words in problems(table):
        found, jacobi = ([r for r in table[system][which] if r.ok] for which in (kind, "jacobi"))
        if not found:
            continue
        result = found[0].result
        times = [milliseconds(1e3 * result[key]) for key in ("setup_s", "solve_s")] + [found[0].words]
        default = next((run for run in table[system][kind] if run.default), None)
        times.append("not measured" if default is None else default.words if default.ok else default.failure)
        times.append(jacobi[0].words if jacobi else "not measured")
        rows.append([words, f"`{found[0].options}`", str(result["iterations"]), *times])
        used += [found[0], *jacobi[:1]]
    heads = ["problem", "options", "iterations", "set-up, ms", "solve, ms", "total, ms", "with the defaults, ms",
             "fastest `jacobi`, ms"]
    return table_of(heads, rows) + sources(used)


def link(root, name):
    """A result file as a link to its page, where it has one."""
    return f"[{name}](/generated/results/{name}.md)" if name in pages(root) else f"`{name}`"


def solves(report):
    """The runs of a result file: system -> label -> run."""
    return {system: {result["set"]: result for result in rows} for system, rows in report.systems.items()}


def ended(result):
    """The words for a solve that did not converge."""
    return f"not in {result['iterations']}" if "DIVERGED_ITS" in result["note"] else f"diverged after {result['iterations']}"


def hard_steps_table(root):
    """bisai by power and relaxation steps on hard cases, beside exact triangular solves: iterations and T_total."""
    def words(result):
        if result["status"] != "ok":
            return ended(result)
        return f"{result['iterations']}, {milliseconds(1e3 * result['total_s'])} ms"
    rows = []
    for name in ("bisai_hard_gpu", "bisai_sides_gpu_peclet"):
        for system, runs_of in solves(load(root, name)).items():
            exact = [f"`{system}`"] + [words(runs_of[label]) for label in ("ilu", "aij-ilu")]
            here = [[words(runs_of[f"rows-p{power}-s{steps}"]) for steps in range(4)] for power in range(1, 5)]
            if all(line == here[0] for line in here):
                rows.append(exact + ["1 to 4"] + here[0])
            else:
                rows += [exact + [str(power + 1)] + here[power] for power in range(4)]
    steps = ["0 steps", "1 step", "2 steps", "3 steps"]
    return table_of(["system", "exact, on the host", "exact, by cuSPARSE", "power"] + steps, rows)


def factor_sweeps_table(root):
    """bisai with factors by sweeps beside the exact factors: iterations, set-up, set-up and solve."""
    rows = []
    for name in ("bisai_sides", "bisai_sides_block"):
        for system, runs_of in solves(load(root, name)).items():
            for power in (1, 3):
                row = [f"`{system}`", str(power)]
                for label in ("s0", "f1", "f2", "f3", "f5"):
                    result = runs_of.get(f"rows-p{power}-{label}")
                    times = [f"{1e3 * result[key]:.1f}" for key in ("setup_s", "total_s")] if result else []
                    row.append(f"{result['iterations']}; {', '.join(times)} ms" if result else "not measured")
                rows.append(row)
    return table_of(["system", "power", "exact", "1 sweep", "2 sweeps", "3 sweeps", "5 sweeps"], rows)


def single_apply_table(root):
    """Shares of the copy bandwidth that an application of bisai reaches, by size of the blocks."""
    systems = solves(load(root, "bisai_blocks_apply"))
    labels = {f"single, power {power}": f"bisai{power}" for power in (1, 2, 3)}
    labels["double, power 1"] = "bisai1-double"
    rows = []
    for words, label in labels.items():
        rows.append([words] + [f"{100 * runs_of[label]['apply_floor']:.1f} %" for runs_of in systems.values()])
    return table_of(["inverses in"] + [f"`{system}`" for system in systems], rows)


def same_iterations_table(root, bound=0.02):
    """gmresfused on hard systems beside modified Gram-Schmidt: which of its counts are further off than the bound."""
    rows, missed, count = [], [], 0
    for system, runs_of in solves(load(root, "gmresfused_hard_host")).items():
        for restart in (10, 30, 100):
            theirs = runs_of[f"mgs-{restart}"]
            row = [f"`{system}`", str(restart)]
            for kind in ("mgs", "gmres", "gmresfused", "one", "single"):
                mine = runs_of[f"{kind}-{restart}"]
                words, off = ended(mine), mine["status"] != theirs["status"]
                if mine["status"] == "ok":
                    change = mine["iterations"] / theirs["iterations"] - 1
                    comparable = theirs["status"] == "ok" and change
                    words = f"{mine['iterations']} ({100 * change:+.1f} %)" if comparable else str(mine["iterations"])
                    off = off or abs(change) > bound
                if kind == "gmresfused":
                    count += theirs["status"] == "ok"
                    if off:
                        missed.append(f"`{system}` with a restart of {restart}")
                row.append(words)
            row += [f"{runs_of[f'{kind}-{restart}']['true_residual']:.1e}" for kind in ("gmresfused", "single")]
            rows.append(row)
    heads = ["system", "restart", "PETSc's `gmres`, modified Gram-Schmidt", "classical", "`gmresfused`", "one product a step",
             "basis in single", "true residual, `gmresfused`", "true residual, basis in single"]
    listed = ", ".join(missed[:-1]) + " and " + missed[-1] if len(missed) > 1 else "".join(missed)
    text = f"\nWhere PETSc's modified Gram-Schmidt converges, {count - len(missed)} of {count} counts of `gmresfused` are within "
    return table_of(heads, rows) + text + f"{100 * bound:.0f} % of it" + (f"; the others are {listed}.\n" if missed else ".\n")


COUNTS = (1, 2, 4, 8, 16, 64, 256)


def crossovers(root):
    """A row for each system: the fastest set for so many right-hand sides with one set-up, in ms, and from how many on it is."""
    rows = []
    for name in ("cmatch_crossovers_3d", "cmatch_crossovers_2d"):
        for system, results in load(root, name).systems.items():
            # set, set-up and first solve, a further solve
            sets = [(r["set"], 1e3 * r["total_s"], 1e3 * (r["again_s"] or r["solve_s"])) for r in results if r["status"] == "ok"]

            def best(count, sets=sets):
                return min((first + (count - 1) * further, label) for label, first, further in sets)
            changes, last = [], None
            for count in range(1, 1001):
                if best(count)[1] != last:
                    last = best(count)[1]
                    changes.append(f"{last} {count}")
            rows.append([system, *(f"{label} {time:.1f}" for time, label in map(best, COUNTS)), ", ".join(changes)])
    return rows


def crossovers_table(root):
    names = dict([("poisson2d5:1023", "2D Poisson, 1023², 5-point stencil"), *(problem[:2] for problem in PROBLEMS)])
    head = ["ms, right-hand sides:", *map(str, COUNTS), "fastest from .. on"]
    body = [[names[row[0]], *row[1:]] for row in crossovers(root)]
    marks = [":--"] + ["--:"] * (len(head) - 2) + [":--"]
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, marks, *body)]
    return "\n".join(lines) + "\n\n```{made} cmatch_crossovers_3d cmatch_crossovers_2d\n```\n"


def fragments(root):
    found = {"which_table": which_table(root), "which_fastest": which_fastest(root), "which_gamg": which_gamg(root),
             "crossovers": crossovers_table(root)}
    for kind in OURS:
        found[f"measured_{kind}"] = measured_table(root, kind)
    found["bisai_hard_steps"] = hard_steps_table(root)
    found["bisai_factor_sweeps"] = factor_sweeps_table(root)
    found["bisai_single_apply"] = single_apply_table(root)
    found["gmresfused_hard"] = same_iterations_table(root)
    found["one_h100"] = one_h100_table(root)
    found["direct_h100"] = direct_table(root)
    found["gpus_h100"] = gpus_h100_table(root)
    return found


# ---- where figures come from ----

def made(root, names):
    """One line for the figures above it: the machine, and links to the files of benchmarks/results."""
    machines = {}
    for name in dict.fromkeys(names):
        with open(f"{root}/benchmarks/results/{name}.{ending(root, name)}", encoding="utf-8") as f:
            head = keep.HEAD.match(f.readline().removeprefix("# "))
        where, petsc = "", ""
        if head:
            ranks, petsc = int(head["ranks"]), f"PETSc {head['petsc']}"
            where = f"a host, {'one rank' if ranks == 1 else f'{ranks} ranks'}, "
            if head["backend"] == "cuda":
                driver = (head["driver"] or "").split(".")[0]
                where = f"{'one' if ranks == 1 else ranks} {head['device'].replace(' 80GB HBM3', '')}, driver {driver}, "
        machines.setdefault(where + petsc, []).append(link(root, name))
    words = [f"{where}: {', '.join(links)}" if where else ", ".join(links) for where, links in machines.items()]
    return "Measured on " + "; ".join(words) + "." if any(machines) else "Figures: " + "; ".join(words) + "."


# ---- result files as pages ----

def ending(root, name):
    """csv for a run that keep.py has kept, md for another table with its reasons"""
    return "csv" if os.path.exists(f"{root}/benchmarks/results/{name}.csv") else "md"


def pages(root):
    names = {os.path.splitext(os.path.basename(path))[0] for path in glob.glob(f"{root}/benchmarks/results/*.*")}
    return sorted((names | {"cmatch_crossovers"}) - NOT_FOR_USERS)


def without_column(text, heading):
    """The tables of a page without the column of that heading, which is no figure but an aim that was set before."""
    lines, column = text.split("\n"), None
    for k, line in enumerate(lines):
        if not line.startswith("|"):
            column = None
            continue
        cells = line.strip("|").split("|")
        if column is None:
            heads = [cell.strip() for cell in cells]
            column = heads.index(heading) if heading in heads else -1
        if column >= 0:
            lines[k] = "|" + "|".join(cells[:column] + cells[column + 1:]) + "|"
    return "\n".join(lines)


def scaled(key, factor, digits):
    return lambda row: f"{factor * row[key]:.{digits}f}" if row[key] is not None else ""


def joules(key):
    return lambda row: "" if row[key] is None else f"{row[key]:.0f}" if row[key] >= 100 else f"{row[key]:.3g}"


def note(row):
    """With several right-hand sides these come first."""
    if not row["columns"]:
        return row["note"]
    words = [f"{row['columns']} right-hand sides: {1e6 * row['columns_iteration_s']:.1f} us/it"]
    words += [f"{row['columns_over_one']:.2f} times one"] if row["columns_over_one"] else []
    words += [f"{row['columns_iterations']} its", f"true res {row['columns_true_residual']:.1e}"]
    return ", ".join(words) + (f"; {row['note']}" if row["note"] else "")


# Columns of a run's page, as finepc_bench prints them
SHOWN_COLUMNS = {
    "system": lambda row: row["system"], "set": lambda row: row["set"], "rows": scaled("rows", 1, 0), "nnz": scaled("nnz", 1, 0),
    "first set-up ms": scaled("first_setup_s", 1e3, 2), "set-up ms": scaled("setup_s", 1e3, 2),
    "refill ms": scaled("refill_s", 1e3, 2), "solve ms": scaled("solve_s", 1e3, 2), "total ms": scaled("total_s", 1e3, 2),
    "its": scaled("iterations", 1, 0), "us/it": scaled("iteration_s", 1e6, 1), "it floor %": scaled("iteration_floor", 100, 0),
    "set-up J": joules("setup_j"), "solve J": joules("solve_j"),
    "density": scaled("density", 1, 2), "complexity": scaled("complexity", 1, 2), "apply us": scaled("apply_s", 1e6, 1),
    "apply MB": lambda row: f"{1e-6 * row['apply_bytes']:.1f}" if row["apply_s"] and row["apply_bytes"] else "",
    "apply floor %": scaled("apply_floor", 100, 0),
    "true res": lambda row: f"{row['true_residual']:.1e}" if row["true_residual"] is not None else "",
    "status": lambda row: row["status"], "note": note,
}


def columns_of(report):
    """The columns of a run's page that have something in them, and their cells."""
    table = [[how(row).replace("|", "/") for how in SHOWN_COLUMNS.values()] for row in report.rows]
    used = [k for k in range(len(SHOWN_COLUMNS)) if any(cells[k] for cells in table)]
    return [list(SHOWN_COLUMNS)[k] for k in used], [[cells[k] for k in used] for cells in table]


def page(root, name):
    if name == "cmatch_crossovers":
        report = load(root, "cmatch_crossovers_3d")
        heads = ["system", *(f"{count} right-hand side{'s' if count > 1 else ''}" for count in COUNTS)]
        return (f"# {name}\n\n{report.machine}, commit {report.commit}, {report.date}; true residual {report.rtol:g}, ms.\n\n"
                + table_of(heads + ["fastest from .. right-hand sides on"], crossovers(root)))
    if ending(root, name) == "csv":
        report = load(root, name)
        commands = "\n".join(report.commands)
        return (f"# {name}\n\n{report.head}. The best of the warm runs, the first use apart.\n\n```text\n{commands}\n```\n\n"
                + table_of(*columns_of(report)))
    with open(f"{root}/benchmarks/results/{name}.md", encoding="utf-8") as f:
        text = without_column(f.read(), "asked")
    if not text.startswith("# "):
        text = f"# {name}\n\n{text}"
    return re.sub(r"^(finepc_\w+: backend.*|NVIDIA .*)$", r"\1\\", text, flags=re.M).replace("\\\n\n", "\n\n")


def index(root):
    text = ["# Result files", "", "Each page is a file of `benchmarks/results`: a run of `finepc_bench`, kept in `NAME.csv`, or "
            "a table of another program with what it means, in `NAME.md`. "
            "[The benchmark](/generated/benchmark.md) says what a system, an option set and a column are.", "",
            "| file | first line |", "|:--|:--|"]
    for name in pages(root):
        first = page(root, name).split("\n")
        first = first[0][2:] if first[0] != f"# {name}" else re.sub(r"\\$|\. The best of .*", "", first[2])
        text.append(f"| [{name}]({name}.md) | {first} |")
    return "\n".join(text + ["", "```{toctree}", ":hidden:", ""] + pages(root) + ["```", ""])


# ---- plots: narrow and with large letters, so that they can be read on a telephone ----

def new_figure(height, width=5.6):
    plt.rcParams.update({"font.size": 11, "svg.hashsalt": "finepc", "axes.grid": True, "grid.alpha": 0.3})
    return plt.subplots(figsize=(width, height))


def save(figure, folder, name):
    figure.savefig(f"{folder}/{name}.svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def plot_which(root, folder):
    table = compared(root)
    figure, axes = new_figure(10.5)
    shown = problems(table)
    for k, (system, _) in enumerate(shown):
        for ours in (True, False):
            for kind in TYPES:
                run = fastest(table[system][kind], ours)
                if run is None or not run.ok:
                    continue
                axes.plot(run.total, k, MARKERS[kind], color=COLORS[kind], markersize=11 if kind == "rrb" else 8,
                          markerfacecolor=COLORS[kind] if ours else "white", markeredgewidth=1.5)
    axes.set_xscale("log")
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_yticks(range(len(shown)), [""] * len(shown))
    for k, (_, words) in enumerate(shown):
        axes.text(0.01, k - 0.28, words, transform=axes.get_yaxis_transform(), fontsize=10, va="center")
    axes.set_xlabel("set-up and solve, ms")
    handles = [plt.Line2D([], [], marker=MARKERS[kind], color=COLORS[kind], linestyle="", markersize=8, label=SHOWN.get(kind, kind))
               for kind in TYPES]
    handles += [plt.Line2D([], [], marker="o", color="#444444", linestyle="", markersize=8,
                           label="filled: cgfused, rrbcg, gmresfused"),
                plt.Line2D([], [], marker="o", color="#444444", markerfacecolor="white", linestyle="", markersize=8,
                           label="hollow: PETSc's solver")]
    figure.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.86 + 0.15), ncol=3, fontsize=10, frameon=False)
    figure.subplots_adjust(top=0.89)
    save(figure, folder, "which")


def plot_convergence(root, folder):
    """SPE10: the residual against time."""
    figure, axes = new_figure(4.4)
    table = compared(root)["spe10"]
    for kind in ("jacobi", "icc", "gamg", "sfsai", "afsai", "cmatch"):
        run = next(r for r in table[kind] if r.ok and r.result["history"] and len(r.result["history"]) > 10)
        result = run.result
        history = result["history"]
        step = result["history_stride"] * result["solve_s"] / max(1, result["iterations"])
        times = [1e3 * (result["setup_s"] + k * step) for k in range(len(history))]
        axes.plot(times, [value / history[0] for value in history], color=COLORS[kind], label=f"{kind}, {run.solver}")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("time from the start of the set-up, ms")
    axes.set_ylabel("residual, relative")
    axes.legend(fontsize=10, loc="lower left")
    save(figure, folder, "spe10")


def plot_sizes(root, folder):
    """Poisson's problem in three dimensions: total time against the number of unknowns."""
    figure, axes = new_figure(4.2)
    for kind in ("jacobi", "sfsai", "cmatch"):
        points = {}
        for name in ("cmatch_sizes", "cmatch", "cmatch_crossovers_3d"):
            for result in load(root, name).rows:
                label = {"sfsai": "sfsai1"}.get(kind, kind)
                if result["kind"] == "poisson3d7" and result["set"] == label and result["status"] == "ok":
                    points.setdefault(result["rows"], 1e3 * result["total_s"])
        rows = sorted(points)
        axes.loglog(rows, [points[n] for n in rows], marker=MARKERS[kind], color=COLORS[kind], label=f"{kind}, cgfused")
    axes.set_xticks(rows, [f"{n / 1e6:.2g}" for n in rows])
    axes.minorticks_off()
    axes.set_yticks([5, 10, 20, 50, 100], ["5", "10", "20", "50", "100"])
    axes.set_xlabel("unknowns, millions")
    axes.set_ylabel("set-up and solve, ms")
    axes.legend()
    save(figure, folder, "cmatch_sizes")


def plot_levels(root, folder):
    with open(f"{root}/benchmarks/results/rrb_levels.md", encoding="utf-8") as f:
        head, _, *rows = [line.strip("| \n").split("|") for line in f if line.startswith("|")]
    figure, axes = new_figure(4)
    for n, *cells in rows:
        if n.strip().isdigit():  # and not Notay's bound
            points = [(int(level), int(cell.split("/")[0])) for level, cell in zip(head[1:], cells) if cell.strip()]
            axes.plot(*zip(*points), marker=".", label=f"h = 1/{n.strip()}")
    axes.set_xlabel("levels")
    axes.set_ylabel("iterations of CG")
    axes.legend(fontsize=10)
    save(figure, folder, "rrb_levels")


def plot_blocks(root, folder):
    """The two flow problems: total time of block-ISAI beside block ILU(0) with triangular solves."""
    names = [("bisai3", "bisai,\npower 3"), ("bisai2", "bisai,\npower 2"), ("bisai1", "bisai,\npower 1"),
             ("bsrsv2", "ILU(0), solves\nby bsrsv2"), ("block-ilu", "ILU(0), solves\non the host"),
             ("aij-ilu", "ILU(0), solves\nby cuSPARSE")]
    systems = solves(load(root, "bisai"))
    figure, axes = new_figure(4.4)
    for k, (label, words) in enumerate(names):
        for j, system in enumerate(("cavity", "ex19")):
            result = systems[system].get(label)
            if not result or result["total_s"] is None:
                continue
            at, total = k + 0.4 * j - 0.2, 1e3 * result["total_s"]
            first = "" if result["warm"] else ", first use"
            axes.barh(at, total, 0.36, color=("#9467bd", "#c5b0d5")[j], label=system if k == 0 else None)
            axes.text(total * 1.08, at, f"{milliseconds(total)}, {result['iterations']} it{first}", va="center", fontsize=9)
    axes.set_xscale("log")
    axes.set_xlim(50, 90000)
    axes.set_yticks(range(len(names)), [words for _, words in names])
    axes.invert_yaxis()
    axes.set_xlabel("set-up and solve, ms")
    axes.legend(fontsize=10, loc="upper right")
    save(figure, folder, "bisai")


def plot_iterations(root, folder):
    """Time of an iteration with Jacobi: PETSc's cg and cgfused, by size."""
    figure, axes = new_figure(4)
    for label, words, color in (("cg-jacobi", "PETSc's cg", "#000000"), ("cgfused-jacobi", "cgfused", "#1f77b4")):
        points = {}
        for name in ("cgfused_small", "cgfused_large"):
            for result in load(root, name).rows:
                if result["set"] == label and result["iteration_s"]:
                    points[result["rows"]] = 1e6 * result["iteration_s"]
        rows = sorted(points)
        axes.loglog(rows, [points[n] for n in rows], "o", color=color, label=words)
    axes.set_xlabel("unknowns (all systems of the two result files)")
    axes.set_ylabel("an iteration with jacobi, µs")
    axes.legend()
    save(figure, folder, "cgfused")


def plots(root, folder):
    for plot in (plot_which, plot_convergence, plot_sizes, plot_levels, plot_blocks, plot_iterations):
        plot(root, folder)
