#!/usr/bin/env python3
"""A model of cgfused with cmatch on many GPUs: Poisson's equation, 7 points, a cube of points for each GPU.

    cmatch_model.py --one ONE.json [..] --profile cmatch_profile.md --counts cmatch_ranks_weak_*.json --light LIGHT.json [..]
                    [--profiled ONE.json [..]] [--messages TWO.json] [--two PATH=TWO.json [..]] [--set-up MPI=TWO.json [..]]
                    [-o model.png] [--md model.md]

What is measured: the kernels of an iteration and of a set-up on one GPU, level by level (--profile) and in all (--one, runs of
finepc_bench with sets/cmatch.txt); rows, entries and ghosts of the levels on 1 to 32 ranks (--counts, runs of `cmatch_ranks`); what
an exchange and a sum take by themselves on two GPUs (--light, runs of `several_gpus`, and MEASURED; --messages, a run of cgfused
whose exchanges are NCCL's own messages, for those between machines). An iteration on P GPUs takes

    T = (o + b n)  +  sum over the lower levels of (o' + b' entries)  +  what its exchanges and sums take

where the first term is that of the finest level and of the conjugate gradients, and rows and entries are those of the rank that
has most. Where --profile is of another GPU than --one, --profiled names runs on that GPU: o' is kept, since it is of launches,
and b' is taken times the ratio of what a row adds to an iteration on the two GPUs, from the systems that both have; a set-up
likewise. That is an assumption: no profile of the GPU of --one is there, and the program may have changed between the two. The
model without any ratio is held beside the runs of --profiled, too. A level on several ranks exchanges four times: the halo of x
twice, contributions to rows of the next level, corrections from there; the conjugate gradients exchange once and sum twice, and
the cycle finds a largest value. A set-up has the same two terms, and for each level on several ranks exchanges, agreements and
three new PetscSF. Which ranks have which level follows the rules of cmatch.

PATH is host (PetscSF through the host), aware (PetscSF with GPU-aware MPI) or light (sums and exchanges in the CUDA graph), and MPI
is host or aware: a set-up exchanges by MPI on each path. TWO.json are runs of `several_gpus` on two GPUs with
sets/several_gpus_cmatch.txt. With --two, what an exchange costs beyond what is measured by itself is fitted for each path: of
cgfused on the light path, and of PETSc's cg by MPI on the others. With --set-up, what a level costs in a set-up beyond the model is
fitted once for all runs with cgfused. Without, all times on more than one GPU are predictions, and the output says so."""
import argparse
import json
import math
import re
import statistics
import sys

import cmatch_ranks

# Two H200 of one host, whatever the GPU of --one is: us of an exchange by bytes, 2000 in a row, and of a sum with the copy before
# and the wait behind it; us to create a PetscSF and to set it up, by bytes of its leaves in double precision. With --messages the
# exchanges by NCCL are those of its runs.
MEASURED = {
    "host": ({1e3: 23, 64e3: 58, 262e3: 155, 1e6: 421}, 11.4),
    "aware": ({1e3: 22, 64e3: 24, 262e3: 25, 1e6: 26}, 11.4),
    "NCCL in a graph": ({1e3: 6.2, 117e3: 8.0, 433e3: 11.6}, 5.7),
}
CREATE_SF = {1e3: 290, 64e3: 730, 262e3: 2900, 1e6: 7000}
AGREEMENT = 2.8 # us, of an MPI_Allreduce of host memory, the same two GPUs
ASSUMED = {
    "gpus of a machine": 8,
    "us of a sum for each doubling of machines": 2.0,
    "us of the first message of an exchange between machines": 3.0,
    "us of each further one": 0.5,
    "GB/s between machines, a GPU": 25.0,
    "share of a level's kernels behind which an exchange of its halo can hide": 0.15,
    "foreign columns of P, as a share of the ghosts that a 7-point operator would have": 0.2,
}
PATHS = {"host": "through the host", "aware": "PetscSF, GPU-aware", "light": "light path"}
SET_UPS = {"host": "through the host", "aware": "GPU-aware MPI"} # the light path has a set-up of the latter
LABELS = {"host": "cmatch-cg", "aware": "cmatch-cg", "light": "cmatch"} # of the runs on two GPUs
# of cmatch: its defaults, and what a level does
GATHER_ROWS, GATHER_RANKS, GATHER_FACTOR, GATHER_WIDTH, COARSE_SIZE = 100000, 10000, 8, 80, 300
EXCHANGES, AGREEMENTS, NEW_SF = 4, 5, 3 # of a level: in a cycle; in a set-up, with what the PetscSFs agree upon
SUMS = 3 # of an iteration
WEAK = (1, 2, 8, 64, 512, 1024, 8192)
SIDES = (121, 201) # points a side of a GPU's cube
TALK = (
    "The talk \"Scalable Linear Solvers for GPU-accelerated heterogeneous supercomputers\" (D'Ambra, 2024) solves the\n"
    "same problem, with the coarsening that cmatch has its name of, up to 65 billion unknowns on up to 8192 A100 of\n"
    "Leonardo. These are about 200³ a GPU, so that the table of 201³ is the one to be held beside it. Its solver ends at\n"
    "1e-6 instead of 1e-8, smooths by 4 sweeps of l1-Jacobi before and after the coarse correction instead of 1, and its\n"
    "coarsest level has up to 200 rows a GPU, for 40 iterations of the conjugate gradient method. Its iterations,\n"
    "operator complexities and times are plots without numbers: hence they are not in the plot here.")
STRONG = (1, 2, 4, 8, 16, 32, 64)


def interpolate(table, at):
    sizes = sorted(table)
    if at <= sizes[0]:
        return table[sizes[0]]
    low, high = next(((a, b) for a, b in zip(sizes, sizes[1:]) if at <= b), sizes[-2:])
    return table[low] + (table[high] - table[low]) * (at - low) / (high - low)


def solve_two(columns, rest, weights):
    """Least squares for two unknowns: columns are pairs. The columns are scaled, so that the normal equations lose nothing."""
    rows = [(a * w, b * w, r * w) for (a, b), r, w in zip(columns, rest, weights)]
    scale = [math.sqrt(sum(row[k]**2 for row in rows)) or 1.0 for k in (0, 1)]
    rows = [(a / scale[0], b / scale[1], r) for a, b, r in rows]
    aa, ab, bb, ar, br = (sum(row[k] * row[m] for row in rows) for k, m in ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2)))
    determinant = aa * bb - ab * ab
    if determinant < 1e-12: # the second column is none
        return Line(ar / aa / scale[0], 0.0)
    return Line((ar * bb - br * ab) / determinant / scale[0], (br * aa - ar * ab) / determinant / scale[1])


def fit(columns, values):
    """The same, of relative errors."""
    return solve_two(columns, values, [1 / value for value in values])


class Line(tuple):
    """What is fitted: a constant, and a factor."""

    def __new__(cls, constant, factor):
        return super().__new__(cls, (constant, factor))

    def at(self, size):
        return self[0] + self[1] * size


class Run:
    """A run of finepc_bench with cmatch on a cube of Poisson's equation, or on several of them one behind the other."""

    def __init__(self, report, system, result):
        self.name, self.label, self.ranks, self.rows = system["name"], result["label"], report["ranks"], system["rows"]
        self.iteration, self.setup = 1e6 * result["iteration_s"], 1e3 * result["setup_s"]
        self.solve = 1e3 * result["solve_s"]
        self.iterations, self.complexity = result["iterations"], result["complexity"]
        self.communication = result.get("communication", "")
        self.exchange, self.sum = 1e6 * result.get("exchange_s", 0), 1e6 * result.get("sum_s", 0)
        self.levels = cmatch_ranks.levels(result["view"])
        sizes = [int(size) for size in re.findall(r"\d+", self.name.split(":")[-1])]
        self.face = sizes[0] * (sizes[1] if len(sizes) > 1 else sizes[0])
        self.device = report["device"]
        self.where = f"{report['device']}, commit {report['commit'][:7]}"

    def commit(self):
        return self.where.rsplit(" ", 1)[-1]


def load(paths, wanted):
    runs = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        runs += [Run(report, system, result) for system in report["systems"] for result in system["results"]
                 if "poisson3d7:" in system["name"] and result["status"] == "ok" and wanted(result)]
    return runs


def profile(path):
    """(system, level) -> us of its kernels in an iteration; of its set-up, from its beginning to that of the next level."""
    cycle, setup, system = {}, {}, None
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.startswith("## "):
                system = line[3:].strip()
            found = re.match(r"\| level (\d+) \| ([0-9.]+) \(\d+\) \| \w+ [0-9.]+ \|$", line)
            if found:
                cycle[system, int(found[1])] = float(found[2])
            found = re.match(r"\| level (\d+) to \d+ \|.*\| (\d+) \|$", line)
            if found:
                setup[system, int(found[1])] = float(found[2])
    return cycle, setup


class Level:
    """A level as the rank sees it that has most of it."""

    def __init__(self, number, rows, entries, ranks, ghosts, faces, neighbours):
        self.number, self.rows, self.entries, self.ranks, self.ghosts = number, rows, entries, ranks, ghosts
        self.faces, self.neighbours = faces, neighbours
        self.group, self.next_rows, self.next_entries = 1, 0.0, 0.0 # of the gathering behind the level


def growth(one, other, value):
    """What a row adds to a value of runs on one GPU, over what it adds on another, of the systems that both have."""
    names = {run.name for run in one} & {run.name for run in other}
    if len(names) < 2:
        raise SystemExit("cmatch_model: --one and --profiled need two systems that both have")
    lines = [fit([[1, run.rows] for run in runs if run.name in names], [value(run) for run in runs if run.name in names])
             for runs in (one, other)]
    return lines[0][1] / lines[1][1]


class Model:
    def __init__(self, one, cg, counts, path, light, profiled, messages):
        cycle, setup = profile(path)
        levels = {run.name: run.levels for run in profiled}
        known = [(name, l) for name, l in cycle if name in levels and 0 < l < len(levels[name]) - 1]
        entries = [levels[name][l].entries for name, l in known]
        self.level = fit([[1, e] for e in entries], [cycle[at] for at in known])
        self.setup_level = fit([[1, e] for e in entries], [setup[at] for at in known])
        self.ratio = [1.0, 1.0] if one is profiled else [growth(one, profiled, value) for value in (
            lambda run: run.iteration, lambda run: run.setup)]
        self.level = Line(self.level[0], self.ratio[0] * self.level[1])
        self.setup_level = Line(self.setup_level[0], self.ratio[1] * self.setup_level[1])
        self.coarsest = statistics.mean(t for (name, l), t in cycle.items() if name in levels and l == len(levels[name]) - 1)
        lower = {run.name: run.levels[1:-1] for run in one}
        self.finest = fit([[1, run.rows] for run in one], [run.iteration - self.lower(lower[run.name]) for run in one])
        self.general = fit([[1, run.rows] for run in cg], [run.iteration - self.lower(lower[run.name]) for run in cg])
        self.setup_finest = fit([[1, run.rows] for run in one],
                                [1e3 * run.setup - sum(self.setup_level.at(l.entries) for l in lower[run.name]) for run in one])
        self.one, self.cg = one, cg
        self.spread = {run.ranks: run for run in counts if run.label == "cmatch-spread"}
        self.counted = {run.ranks: run for run in counts if run.label == "cmatch"}
        self.words = {8.0 * run.face: run.exchange for run in light}
        self.word_sum = statistics.median(run.sum for run in light)
        self.messages, self.message_sum = MEASURED["NCCL in a graph"]
        if messages:
            self.messages = {8.0 * run.face: run.exchange for run in messages}
            self.message_sum = statistics.median(run.sum for run in messages)
        self.kernels = True # that write to the other GPUs of a machine
        self.beyond = {path: 0.0 for path in PATHS} # of an exchange
        self.setup_beyond, self.staging = 0.0, 0.0 # ms of a level of a set-up, and of a MB that passes through the host there
        self.bytes = 1.0 # 0 for exchanges of latency alone
        self.further = ASSUMED["us of each further one"]

    def lower(self, levels):
        return sum(self.level.at(level.entries) for level in levels) + self.coarsest

    # ---- the hierarchy of P cubes ----

    def alike(self, active):
        """The counted run whose ranks have as many neighbours, at most."""
        return max((run for ranks, run in self.spread.items() if ranks <= active), key=lambda run: run.levels[0].ghosts).levels

    def shape(self, rows, ranks):
        """The levels of the counted hierarchy that is nearest in size."""
        known = [run for run in self.counted.values() if run.ranks > 1] if ranks > 1 else self.one
        return min(known, key=lambda run: abs(math.log(run.rows / (rows * ranks)))).levels

    def faces(self, ranks):
        """Faces and all neighbours of the rank that has most of them, in boxes."""
        cuts = [0, 0, 0]
        for d in range(3): # ranks along each side, as equal as can be
            side = 2 ** ((math.ceil(math.log2(ranks)) + 2 - d) // 3)
            cuts[d] = min(2, side - 1)
        return sum(cuts), (1 + cuts[0]) * (1 + cuts[1]) * (1 + cuts[2]) - 1

    def hierarchy(self, rows, ranks):
        """Levels of a problem with so many rows for each of the ranks, as cmatch would share them."""
        total, active, levels = float(rows) * ranks, ranks, []
        counted = self.shape(rows, ranks)
        share = [below.rows / level.rows for level, below in zip(counted, counted[1:])]
        wide = [level.entries / level.rows for level in counted]
        usual = max(l for l in range(len(share)) if l < 2 or counted[l].rows >= 5000) # below, the end tells
        number = 0
        while True:
            l = min(number, usual)
            own, ghosts = total / active, 0.0
            if active > 1: # as the last level on which a rank of the counted run had a thousand rows
                alike = [level for level in self.alike(active) if level.rows >= 1000 * level.ranks]
                level = alike[min(number, len(alike) - 1)]
                ghosts = level.ghosts / (level.rows / level.ranks)**(2 / 3) * own**(2 / 3)
            faces, neighbours = self.faces(active) if active > 1 else (0, 0)
            width = 7 - 6 / (rows * ranks)**(1 / 3) if number == 0 else min(wide[l], total)
            levels.append(Level(number, own, own * width, active, ghosts, faces, neighbours if number else faces))
            if total <= COARSE_SIZE or number > 20:
                break
            total, group = max(1.0, total * share[l]), 1
            counting = total * wide[min(number + 1, usual)] / GATHER_WIDTH
            if counting <= GATHER_ROWS or total <= COARSE_SIZE:
                group = active
            elif counting / active < GATHER_RANKS:
                group = min(GATHER_FACTOR, active)
            levels[-1].group = group
            active = max(1, active // group)
            levels[-1].next_rows, levels[-1].next_entries = total / active, total / active * wide[min(number + 1, usual)]
            number += 1
        return levels

    # ---- what exchanges take ----

    def exchange(self, path, size, messages, ranks):
        size = self.bytes * size
        if ranks <= ASSUMED["gpus of a machine"]:
            light = self.words if self.kernels else self.messages
            return interpolate(light if path == "light" else MEASURED[path][0], size)
        own = interpolate(self.messages if path == "light" else MEASURED[path][0], size)
        return (own + ASSUMED["us of the first message of an exchange between machines"]
                + self.further * max(0, messages - 1) + 1e-3 * size / ASSUMED["GB/s between machines, a GPU"])

    def sum_of(self, path, ranks):
        machines = math.ceil(ranks / ASSUMED["gpus of a machine"])
        light = self.word_sum if machines == 1 and self.kernels else self.message_sum
        one = light if path == "light" else MEASURED[path][1]
        return one + ASSUMED["us of a sum for each doubling of machines"] * math.log2(machines)

    def carried(self, level):
        """Rows of the next level that come from other ranks, and messages with them."""
        if level.group > 1:
            return level.next_rows * (level.group - 1) / level.group, level.group - 1
        return (ASSUMED["foreign columns of P, as a share of the ghosts that a 7-point operator would have"] * level.faces
                * level.rows**(2 / 3), level.neighbours)

    def visible(self, path, size, messages, ranks, behind):
        return max(0.0, self.exchange(path, size, messages, ranks) - behind) + self.beyond[path]

    # ---- an iteration and a set-up ----

    def parts(self, path, rows, ranks):
        """The parts of an iteration by name, us."""
        levels = self.hierarchy(rows, ranks)
        finest = self.finest if path == "light" or ranks == 1 else self.general
        own = [finest.at(rows)] + [self.level.at(level.entries) for level in levels[1:-1]] + [self.coarsest]
        share = ASSUMED["share of a level's kernels behind which an exchange of its halo can hide"]
        parts = {"finest level and conjugate gradients": own[0],
                 "lower levels": sum(own[1:])}
        if ranks == 1:
            return parts
        parts.update({"halos": 0.0, "contributions and corrections": 0.0})
        for level, kernels in zip(levels, own):
            if level.ranks == 1:
                continue
            size, messages = self.carried(level)
            parts["halos"] += 2 * self.visible(path, 4 * level.ghosts, level.neighbours, level.ranks, share * kernels)
            parts["contributions and corrections"] += 2 * self.visible(path, 4 * size, messages, level.ranks, 0.0)
        parts["halo of the conjugate gradients"] = self.visible(path, 8 * levels[0].ghosts, levels[0].faces, ranks, share * own[0])
        parts["sums"] = SUMS * self.sum_of(path, ranks)
        return parts

    def iterate(self, path, rows, ranks):
        return sum(self.parts(path, rows, ranks).values())

    def iterate_if(self, path, rows, ranks, **changed):
        """us of an iteration with other values of some attributes."""
        kept = {name: getattr(self, name) for name in changed}
        self.__dict__.update(changed)
        us = self.iterate(path, rows, ranks)
        self.__dict__.update(kept)
        return us

    def set_up_parts(self, path, rows, ranks):
        """The parts of a set-up by name, ms."""
        levels = self.hierarchy(rows, ranks)
        parts = {"kernels and host, as on one GPU":
                 1e-3 * (self.setup_finest.at(rows) + sum(self.setup_level.at(level.entries) for level in levels[1:-1]))}
        if ranks == 1:
            return parts
        new, moved, agreed, levels_of_several = 0.0, 0.0, 0.0, len(self.distributed(rows, ranks))
        for level in (level for level in levels if level.ranks > 1):
            rows_there, messages = self.carried(level)
            new += interpolate(CREATE_SF, 8 * level.ghosts) + (NEW_SF - 1) * interpolate(CREATE_SF, 8 * rows_there)
            sizes = self.set_up_sizes(level)
            moved += sum(self.exchange("aware", size, messages, level.ranks) for size in sizes)
            agreed += AGREEMENTS * (AGREEMENT + ASSUMED["us of a sum for each doubling of machines"]
                                    * math.log2(math.ceil(level.ranks / ASSUMED["gpus of a machine"])))
        parts.update({"new PetscSF": 1e-3 * new, "exchanges": 1e-3 * moved, "agreements": 1e-3 * agreed,
                      "through the host": self.staging * self.megabytes(rows, ranks) if path == "host" else 0.0,
                      "beyond the model": self.setup_beyond * levels_of_several})
        return parts

    def set_up_sizes(self, level):
        """Bytes of the exchanges of a level: numbers, rows of P, and rows of the next level."""
        rows, _ = self.carried(level)
        wide = level.next_entries / level.next_rows
        return ([4 * level.ghosts, 16 * level.ghosts, 16 * level.ghosts]
                + (2 if level.group > 1 else 1) * [4 * rows, 8 * rows, 4 * wide * rows, 8 * wide * rows])

    def megabytes(self, rows, ranks):
        return 1e-6 * sum(sum(self.set_up_sizes(level)) for level in self.distributed(rows, ranks))

    def set_up(self, path, rows, ranks):
        return sum(self.set_up_parts(path, rows, ranks).values())

    def complexity(self, rows, ranks):
        levels = self.hierarchy(rows, ranks)
        return sum(level.entries * level.ranks for level in levels) / (levels[0].entries * ranks)

    def iterations(self, ranks):
        """Those that were counted, with as many ranks or the next smaller number of them."""
        return self.counted[max(count for count in self.counted if count <= ranks)].iterations

    def solve(self, path, rows, ranks):
        return 1e-3 * self.iterations(ranks) * self.iterate(path, rows, ranks)

    def total(self, path, rows, ranks):
        return self.set_up(path, rows, ranks) + self.solve(path, rows, ranks)

    def distributed(self, rows, ranks):
        return [level for level in self.hierarchy(rows, ranks) if level.ranks > 1]

    def exchanges(self, rows, ranks):
        return EXCHANGES * len(self.distributed(rows, ranks)) + 1 if ranks > 1 else 0

    # ---- two GPUs ----

    def fit_two(self, two):
        """What an exchange costs beyond the model, by path."""
        for path in PATHS:
            runs = [run for where, run in two if where == path]
            if not runs:
                continue
            count = [self.exchanges(run.rows / 2, 2) / run.iteration for run in runs]
            rest = [1 - self.iterate(path, run.rows / 2, 2) / run.iteration for run in runs]
            self.beyond[path] = sum(c * r for c, r in zip(count, rest)) / sum(c * c for c in count)

    def fit_set_up(self, runs):
        """What a level of a set-up costs beyond the model, whatever MPI it has, and what passes through the host."""
        columns = [[len(self.distributed(run.rows / 2, 2)), self.megabytes(run.rows / 2, 2) if mpi == "host" else 0.0]
                   for mpi, run in runs]
        rest = [run.setup - self.set_up("aware", run.rows / 2, 2) for _, run in runs]
        self.setup_beyond, self.staging = solve_two(columns, rest, [1 / run.setup for _, run in runs])


def cells(values, form):
    return " | ".join(form.format(value) for value in values)


def one_gpu(model, say):
    """The table of one GPU."""
    say(f"| one {model.one[0].device} | us an iteration | model | % | set-up, ms | model | % |\n|:--|--:|--:|--:|--:|--:|--:|")
    worst, sizes = [0.0, 0.0], len(model.one)
    for run in sorted(model.one, key=lambda run: run.rows):
        t, s = model.iterate("light", run.rows, 1), model.set_up("light", run.rows, 1)
        errors = [100 * (t / run.iteration - 1), 100 * (s / run.setup - 1)]
        worst = [max(old, abs(new)) for old, new in zip(worst, errors)]
        say(f"| {run.name} | {run.iteration:.0f} | {t:.0f} | {round(errors[0]):+d} | {run.setup:.2f} | {s:.2f} | "
            f"{round(errors[1]):+d} |")
    say(f"\nThe largest error on one {model.one[0].device} is {worst[0]:.0f} % of an iteration and {worst[1]:.0f} % of a set-up"
        + (f", of {sizes} sizes for two numbers of each.\n" if sizes > 2 else
           ": two sizes give the two numbers of each, so that this shows nothing.\n"))


def unexplained(model, set_ups, say):
    """What a set-up through the host takes more than one with GPU-aware MPI, of systems that have both."""
    both = {}
    for mpi, run in set_ups:
        both.setdefault(run.name, {})[mpi] = run
    both = {name: runs for name, runs in both.items() if len(runs) == len(SET_UPS)}
    if both:
        say("A set-up through the host takes longer than one with GPU-aware MPI, in ms: " + "; ".join(
            f"{name} {runs['host'].setup - runs['aware'].setup:.1f}, in the model "
            f"{model.set_up('host', runs['host'].rows / 2, 2) - model.set_up('aware', runs['host'].rows / 2, 2):.1f} with "
            f"{model.megabytes(runs['host'].rows / 2, 2):.0f} MB"
            for name, runs in both.items()) + ".\n")


def report(model, form, two, set_ups, messages, by_mpi, out):
    say = lambda text="": print(text, file=out) # noqa: E731
    fitted = [path for path in PATHS if any(where == path for where, _ in two)]
    say("# A model of cmatch on many GPUs\n")
    say(f"Poisson's equation, 7 points, `cgfused` with `cmatch`; measured on one GPU: {model.one[0].where}; levels counted on "
        f"{', '.join(str(ranks) for ranks in sorted(model.counted))} ranks.\n")
    if not fitted:
        say("**No run on two GPUs went into this: every time on more than one GPU is a prediction**, from one GPU's kernels and "
            "from exchanges and sums that were measured by themselves.\n")
    else:
        say("Fitted to runs on two GPUs: " + "; ".join(
            f"{PATHS[path]}, an exchange {model.beyond[path]:+.1f} us beyond the one measured by itself" for path in fitted)
            + (f"; a level of a set-up {model.setup_beyond:+.2f} ms beyond the model, and {model.staging:.2f} ms for each MB that "
               "passes through the host there" if set_ups else "") + ". "
            + ("The other paths, and all" if len(fitted) < len(PATHS) else "All")
            + " times on more than two GPUs are predictions.\n")
    say(f"One GPU: an iteration {model.finest[0]:.0f} us + {1e3 * model.finest[1]:.3f} ns a row for the finest level and the "
        f"conjugate gradients (with PETSc's `cg` {model.general[0]:.0f} us + {1e3 * model.general[1]:.3f} ns), "
        f"{model.level[0]:.1f} us + "
        f"{1e6 * model.level[1]:.2f} ps an entry for each lower level, {model.coarsest:.1f} us for the coarsest; a set-up "
        f"{1e-3 * model.setup_finest[0]:.2f} ms + {1e3 * model.setup_finest[1]:.2f} ns a row, and "
        f"{1e-3 * model.setup_level[0]:.2f} ms + {1e3 * model.setup_level[1]:.3f} ns an entry for each lower level.\n")
    one_gpu(model, say)
    if form:
        say(f"The kernels of single levels were measured on another GPU alone, {form.one[0].where}. On {model.one[0].device} a row "
            f"adds {model.ratio[0]:.2f} times as much to an iteration and {model.ratio[1]:.2f} times as much to a set-up: the time "
            "of an entry of a lower level is multiplied by these ratios, and the constant time of a level is kept. That levels "
            "have the ratios of the whole is an assumption. The model of the other GPU, without ratios, beside its runs:\n")
        one_gpu(form, say)
    say("An exchange by itself, us: " + "; ".join(
        f"{PATHS[path]} {interpolate(table, 1e3):.0f} with 1 kB, {interpolate(table, 117e3):.0f} with 117 kB"
        for path, table in [(path, MEASURED[path][0]) for path in ("host", "aware")]) + "; light path, by kernels within a "
        f"machine, {interpolate(model.words, 117e3):.1f} with 117 kB, by NCCL in the graph between machines "
        f"{interpolate(model.messages, 117e3):.1f}. A sum: {MEASURED['aware'][1]} us, light path "
        f"{model.word_sum:.1f} within a machine and {model.message_sum:.1f} between machines. Those through the host and by "
        "PetscSF, and what a new PetscSF takes, were measured on two H200"
        + (f"; on two {by_mpi[0].device} an exchange with GPU-aware MPI took " + " and ".join(
            f"{statistics.median(run.exchange for run in by_mpi if run.face == face):.0f} us with {8e-3 * face:.0f} kB"
            for face in sorted({run.face for run in by_mpi})) if by_mpi else "") + ".\n")
    say("Through the host and by PetscSF a cycle's kernels on several ranks are launched one by one, and PETSc's `cg` is around "
        "them: what PETSc's `cg` takes more on one GPU is in the model, launches that a wait for a message exposes are not. A "
        "set-up is the same on each path: it exchanges by MPI, which takes memory of the GPU or not.\n")
    say("Assumed: " + ", ".join(f"{key}: {value:g}" for key, value in ASSUMED.items()) + ".\n")
    if two:
        say("## Two GPUs\n\n| system | path | commit | us an iteration | model | % | iterations | solve, ms | "
            "these iterations, ms |\n|:--|:--|:--|--:|--:|--:|--:|--:|--:|")
        rows = [(PATHS[path], run, model.iterate(path, run.rows / 2, 2)) for path, run in two]
        rows += [("light path by NCCL's messages, not fitted", run, model.iterate_if("light", run.rows / 2, 2, kernels=False))
                 for run in messages]
        for words, run, t in rows:
            say(f"| {run.name} | {words} | {run.commit()} | {run.iteration:.0f} | {t:.0f} | "
                f"{100 * (t / run.iteration - 1):+.0f} | {run.iterations} | {run.solve:.1f} | {1e-3 * run.iterations * t:.1f} |")
        say()
    if set_ups:
        say("| system | MPI | commit | set-up, ms | model | % |\n|:--|:--|:--|--:|--:|--:|")
        for mpi, run in set_ups:
            t = model.set_up(mpi, run.rows / 2, 2)
            say(f"| {run.name} | {SET_UPS[mpi]} | {run.commit()} | {run.setup:.2f} | {t:.2f} | {100 * (t / run.setup - 1):+.0f} |")
        def worst(pairs):
            return f"{100 * max(abs(t / of - 1) for t, of in pairs):.0f} %"
        say("\nThe largest errors on two GPUs: of an iteration, " + ", ".join(
            f"{PATHS[path]} {worst([(model.iterate(path, run.rows / 2, 2), run.iteration) for p, run in two if p == path])}"
            for path in fitted) + "; of a set-up, " + ", ".join(
            f"{words} {worst([(model.set_up(mpi, run.rows / 2, 2), run.setup) for m, run in set_ups if m == mpi])}"
            for mpi, words in SET_UPS.items() if any(m == mpi for m, _ in set_ups))
            + ". These are runs that the model is fitted to, two sizes for one number of each path, and set-ups for two numbers"
            + ("" if not messages else "; of an iteration with NCCL's messages, to which nothing is fitted, "
               + worst([(model.iterate_if("light", run.rows / 2, 2, kernels=False), run.iteration) for run in messages]))
            + ".\n\nA solve takes longer than its iterations, and the model has nothing of the difference, so that its times of "
            "set-up and solve are too short by it.\n")
        unexplained(model, set_ups, say)

    for side in SIDES:
        weak(model, side, say)
    head, rows = " | ".join(f"{ranks:,}" for ranks in WEAK), SIDES[0]**3
    say(f"\nThe parts of an iteration with {SIDES[0]}³ unknowns a GPU, us:\n")
    say(f"| path | part | {head} |\n|:--|:--|" + "--:|" * len(WEAK))
    for path, words in PATHS.items():
        parts = [model.parts(path, rows, p) for p in WEAK]
        for k, name in enumerate(parts[-1]):
            say(f"| {words if not k else ''} | {name} | " + " | ".join(f"{p[name]:.0f}" if name in p else "" for p in parts) + " |")
    say("\nThe parts of a set-up, through the host, and with GPU-aware MPI without the row \"through the host\", ms:\n")
    say(f"| part | {head} |\n|:--|" + "--:|" * len(WEAK))
    parts = [model.set_up_parts("host", rows, p) for p in WEAK]
    for name in parts[-1]:
        say(f"| {name} | " + " | ".join(f"{p[name]:.1f}" if name in p else "" for p in parts) + " |")
    say("\n## Strong scaling, 201³ unknowns in all\n")
    say(f"| GPUs | {' | '.join(str(p) for p in STRONG)} |\n|:--|" + "--:|" * len(STRONG))
    for path, words in PATHS.items():
        say(f"| set-up + solve, ms, {words} | " + " | ".join(
            f"{model.set_up(path, 201**3 / p, p):.1f} + {model.solve(path, 201**3 / p, p):.1f}" for p in STRONG) + " |")
    say("\n## Beside the talk\n")
    say(TALK)
    say("\n## What ends the scaling\n")
    ends(model, say)


def weak(model, side, say):
    """The table of as many unknowns for each GPU."""
    head, rows = " | ".join(f"{ranks:,}" for ranks in WEAK), side**3
    say(f"## Weak scaling, {side}³ unknowns a GPU\n")
    say(f"| GPUs | {head} |\n|:--|" + "--:|" * len(WEAK))
    say("| levels (of them on several ranks) | " + " | ".join(
        f"{len(model.hierarchy(rows, p))} ({len(model.distributed(rows, p))})" for p in WEAK) + " |")
    say("| operator complexity | " + cells([model.complexity(rows, p) for p in WEAK], "{:.2f}") + " |")
    say("| exchanges an iteration | " + cells([model.exchanges(rows, p) for p in WEAK], "{}") + " |")
    say("| iterations to 1e-8, counted with 64³ a rank on as many ranks or the next smaller number | "
        + cells([model.iterations(p) for p in WEAK], "{}") + " |")
    for path, words in PATHS.items():
        say(f"| us an iteration, {words} | " + " | ".join(
            f"{model.iterate(path, rows, p):.0f} ({model.iterate('light', rows, 1) / model.iterate(path, rows, p):.2f})"
            for p in WEAK) + " |")
    for mpi, words in SET_UPS.items():
        say(f"| set-up, ms, {words} | " + cells([model.set_up(mpi, rows, p) for p in WEAK], "{:.1f}") + " |")
    for path, words in PATHS.items():
        say(f"| set-up and solve, ms, {words} | " + cells(
            [model.total(path, rows, p) for p in WEAK], "{:.1f}") + " |")
    say("\nIn brackets is the efficiency, an iteration on one GPU over that one.\n")


def ends(model, say):
    for path, words in PATHS.items():
        largest = WEAK[-1]
        parts, one = model.parts(path, 121**3, largest), model.parts(path, 121**3, 1)
        grown = {name: value - one.get(name, 0.0) for name, value in parts.items()}
        most = max(grown, key=grown.get)
        start = f"{words[0].upper()}{words[1:]}"
        bare = model.iterate_if(path, 121**3, largest, bytes=0.0)
        slow = model.iterate_if(path, 121**3, largest, further=ASSUMED["us of the first message of an exchange between machines"])
        say(f"- {start}: from 1 to {largest:,} GPUs with 121³ unknowns each an iteration becomes "
            f"{sum(parts.values()) / sum(one.values()):.1f} times as long; the largest part of what is added, {grown[most]:.0f} of "
            f"{sum(grown.values()):.0f} us, are the {most}. "
            f"Without bytes to send it would take {bare:.0f} instead of {sum(parts.values()):.0f} us: "
            + ("latency is what counts" if bare - sum(own_work(parts)) > sum(parts.values()) - bare else "bytes are what counts")
            + f". If each message between machines took as long as the first it would take {slow:.0f} us. "
            + local_size(model, path, largest) + " " + strong(model, path))


def own_work(parts):
    return [parts[name] for name in ("finest level and conjugate gradients", "lower levels")]


def local_size(model, path, ranks):
    """Down to which size the rank's own work on the finest level is the larger part."""
    def own(side):
        return model.parts(path, side**3, ranks)["finest level and conjugate gradients"] / model.iterate(path, side**3, ranks)
    side = next((side for side in range(20, 1001) if own(side) >= 0.5), None)
    if side is None:
        return f"On {ranks:,} GPUs the finest level is less than half of an iteration up to 1000³ unknowns a GPU."
    parts = model.parts(path, side**3, ranks)
    return (f"On {ranks:,} GPUs the finest level is half of an iteration from {side}³ unknowns a GPU on; there, in us: "
            + ", ".join(f"{name} {value:.0f}" for name, value in parts.items()) + ".")


def strong(model, path):
    total = {p: model.total(path, 201**3 / p, p) for p in STRONG}
    best = min(total, key=total.get)
    if best == 1:
        return "With 201³ unknowns in all no number of GPUs is faster than one."
    return (f"With 201³ unknowns in all {best} GPUs, {round((201**3 / best)**(1 / 3))}³ unknowns each, are the fastest of "
            f"{', '.join(str(p) for p in STRONG)}: {total[best] / total[1]:.2f} of one GPU's time.")


def plot(model, two, set_ups, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(17, 4.2), constrained_layout=True)
    ranks, rows = [2**k for k in range(14)], SIDES[0]**3
    colors = dict(zip(PATHS, ("#d62728", "#1f77b4", "#2ca02c")))
    counted = sorted(model.counted)
    axes[0].plot(counted, [model.counted[p].iterations for p in counted], "o", color="black", label="counted, 64³ a rank")
    axes[0].plot(ranks, [model.iterations(p) for p in ranks], ":", color="black", label="taken for more GPUs")
    axes[0].set_ylim(0, 1.4 * max(run.iterations for run in model.counted.values()))
    axes[0].set_title("iterations to 1e-8")
    axes[1].plot(counted, [model.counted[p].complexity for p in counted], "o", color="black", label="counted, 64³ a rank")
    for side, line in zip(SIDES, ("-", "--")):
        axes[1].plot(ranks, [model.complexity(side**3, p) for p in ranks], line, color="black", label=f"model, {side}³ a GPU")
    axes[1].set_title("operator complexity")
    axes[1].set_ylim(1, 2)
    for side, line, mark in zip(SIDES, ("-", "--"), ("o", "s")):
        rows = side**3
        measured = [run for run in model.one if run.rows == rows]
        for name, words in PATHS.items():
            if side != SIDES[0] and name != "light":
                continue
            axes[2].plot(ranks, [model.iterate(name, rows, p) for p in ranks], line, color=colors[name],
                         label=f"{words}, {side}³")
            here = [run for where, run in two if where == name and run.rows == 2 * rows]
            axes[2].plot([2] * len(here), [run.iteration for run in here], mark, color=colors[name])
        for name, words in SET_UPS.items():
            if side != SIDES[0] and name != "aware":
                continue
            axes[3].plot(ranks, [model.set_up(name, rows, p) for p in ranks], line, color=colors[name], label=f"{words}, {side}³")
            here = [run for mpi, run in set_ups if mpi == name and run.rows == 2 * rows]
            axes[3].plot([2] * len(here), [run.setup for run in here], mark, color=colors[name])
        axes[2].plot([1] * len(measured), [run.iteration for run in measured], mark, color="black", label=f"measured, {side}³")
        axes[3].plot([1] * len(measured), [run.setup for run in measured], mark, color="black", label=f"measured, {side}³")
    axes[2].set_title("µs an iteration")
    axes[3].set_title("set-up, ms")
    for axis in axes:
        axis.set_xscale("log", base=2)
        axis.set_xlabel("GPUs" + ("" if two or axis in axes[:2] else " (from 2 on a prediction)"))
        if axis in axes[2:]:
            axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def of_paths(option, arguments, paths, labels):
    """Runs of files that are given as NAME=FILE, with these names."""
    runs = []
    for argument in arguments:
        path, _, file = argument.partition("=")
        if path not in paths or not file:
            raise SystemExit(f"cmatch_model: {option} {argument} is not NAME=FILE with NAME of {', '.join(paths)}")
        found = load([file], lambda r, label=labels[path]: r["label"] == label)
        if not found or any(run.ranks != 2 for run in found):
            raise SystemExit(f"cmatch_model: {file} has no {labels[path]} on two ranks that went well on Poisson's equation")
        runs += [(path, run) for run in found]
    return runs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs="+", required=True, help="results of cmatch on one GPU, of two sizes and more")
    parser.add_argument("--profile", required=True, help="what profile.py says of some of them")
    parser.add_argument("--profiled", nargs="+", default=[], metavar="ONE",
                        help="as --one, on the GPU of the profile, if that is another")
    parser.add_argument("--messages", nargs="+", default=[], metavar="FILE", help="results on two GPUs, by messages of NCCL")
    parser.add_argument("--counts", nargs="+", required=True, help="results of `cmatch_ranks`, its part weak")
    parser.add_argument("--light", nargs="+", required=True, help="results on two GPUs that name an exchange and a sum by kernels")
    parser.add_argument("--two", nargs="+", default=[], metavar="PATH=FILE", help="results on two GPUs")
    parser.add_argument("--set-up", nargs="+", default=[], metavar="MPI=FILE", help="results on two GPUs, of set-ups")
    parser.add_argument("-o", "--output", help="plot")
    parser.add_argument("--md", help="tables")
    options = parser.parse_args()
    one = load(options.one, lambda r: r["label"] == "cmatch" and r["ksp_type"] == "cgfused")
    cg = load(options.one, lambda r: r["label"] == "cmatch-cg")
    profiled = load(options.profiled, lambda r: r["label"] == "cmatch" and r["ksp_type"] == "cgfused")
    by_messages = lambda r: r["label"] == "cmatch" and re.match("nccl(?!.* write to)", r.get("communication", "")) # noqa: E731
    messages = load(options.messages, by_messages)
    by_mpi = [run for run in load(options.light, lambda r: r["label"].endswith("-mpi")) if run.exchange]
    counts = load(options.counts, lambda r: r["label"] in ("cmatch", "cmatch-spread"))
    light = load(options.light, lambda r: "write to the other GPUs" in r.get("communication", ""))
    two = of_paths("--two", options.two, PATHS, LABELS)
    set_ups = of_paths("--set-up", options.set_up, SET_UPS, {mpi: "cmatch" for mpi in SET_UPS})
    if options.messages and {run.ranks for run in messages} != {2}:
        raise SystemExit("cmatch_model: --messages has no cmatch with NCCL's messages on two ranks")
    if {run.ranks for run in one + cg + profiled} != {1} or {run.ranks for run in light} != {2}:
        raise SystemExit("cmatch_model: --one takes results of one rank, and --light those of two ranks")
    for path, run in two:
        if (path == "light") != run.communication.startswith("nccl"):
            raise SystemExit(f"cmatch_model: {run.name} was not run on the path {path}: {run.communication or 'no light path'}")
    model = Model(one, cg, counts, options.profile, light, profiled or one, messages)
    form = Model(profiled, profiled, counts, options.profile, light, profiled, messages) if profiled else None
    if two:
        model.fit_two(two)
    if set_ups:
        model.fit_set_up(set_ups)
    with open(options.md, "w", encoding="utf-8") if options.md else sys.stdout as out:
        report(model, form, two, set_ups, messages, by_mpi, out)
    if options.output:
        plot(model, two, set_ups, options.output)


if __name__ == "__main__":
    main()
