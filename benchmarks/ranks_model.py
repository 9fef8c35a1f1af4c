#!/usr/bin/env python3
"""A model of set-up and iteration of cgfused on many GPUs, fitted to runs of benchmarks/several_gpus on one GPU and on two.

    ranks_model.py ONE.json [..] --two TWO.json [..] --messages TWO.json [..] --setups SETUP.json [..]
                   [--check TWO.json [..]] [-o model.png] [--md model.md]

An iteration on P GPUs with n rows each takes

    T = o + n b  +  2 t_sum(P)  +  X (c + max(0, t_exchange - t_product))

o and b are those of one GPU, from two sizes of the same set: b is what a row's bytes take, o what the launches do. X is the number
of exchanges: one for A, and one for each factor if it reaches other ranks. c is what an exchange costs though a product hides it:
packing, the fork in the graph, and the product with the entries that came. t_sum(2) and c are fitted to the runs on two GPUs, by
least squares of relative errors: for the GPUs of one machine to those of --two, whose kernels write to the memory of the other GPU,
and for more machines, where they cannot, to those of --messages, whose exchanges are NCCL's own messages. There c = c0 + c1 n,
since an exchange costs more where a rank has more: n and the face grow together in the two sizes that were measured, so that the
runs do not say which of the two it is. A set-up takes

    S = s + n d  +  m  +  (g + f (c + h e) if the factor reaches other ranks)
      + (agreements t_agree(P) + exchanges t_first + further messages t_further + bytes / bandwidth if there are several machines)

s and d from one GPU, m, g, c and e from two: m is what ranks need to agree, f the number of rows of a face, and f h that of the
rows gathered, h layers deep. PCJACOBI has no set-up to speak of, and takes no part in this fit. The second line is what a network
adds to them: agreements, exchanges, messages and bytes are COUNTED, and their times are assumed.

Fitted are runs with 7 points. Each SETUP.json is fitted by itself, and the first one counts for more GPUs. The runs of --check are
compared with the model and not fitted: those that --two has not, or of other systems. The own work on another system comes from the
one size of it in ONE.json: o or s of the set stays, and the rest goes with the rows. Beyond two GPUs nothing was measured. What is
assumed for them is in ASSUMED, and printed."""
import argparse
import json
import math
import os
import re
import sys

from made_with import machine

ASSUMED = {
    "gpus of a machine": 8,
    "us of a sum for each doubling of machines": 2.0,
    "us of a message between machines": 3.0,
    "us of each further message of an exchange in a set-up": 0.5,
    "GB/s between machines, a GPU": 25.0,
    "GB/s between GPUs of a machine": 338.0,
    "us of an exchange within a machine": 9.0,
    "layers of G that are exchanged": 1.34,
}
# What a set-up sends, by PETSc's counters of reductions and messages on 2, 8 and 27 ranks with boxes, which say the same for each
# neighbour. Agreements: 25 of the steps in src/pc/halo.cxx, src/pc/fsai.cxx and src/pc/local.cxx, one of the solver, and a sum for
# each PetscCommBuildTwoSided(), of the plan and of two PetscSFs. An exchange is one message to each neighbour.
COUNTED = {
    "agreements of a set-up whose factor stays on its rank": 3,
    "agreements of one whose factor reaches other ranks": 29,
    "exchanges of it": 15,
    "messages of it for each lower-numbered neighbour": 17,
    "bytes of a gathered row": 92, # its number and its length, and 7 entries of a number and a value in double precision
    "bytes of a row of a face that is asked for": 8, # its number, and how many layers are wanted from there on
    "bytes of an entry of G on another rank": 12, # row and column, and a value in single precision
    "bytes of a row that the exchanges of G and G^T bring": 8, # its number in each of them
}
PREDICTED = (1, 2, 8, 32, 256, 2048, 10000)
SHORT = 0.5 # ms: shorter set-ups are none to speak of
PAPER = (32, 256) # GPUs of the weak scaling in section 5.3 of Isotton, Janna and Bernaschi, with 121^3 unknowns for each


class Run:
    def __init__(self, report, system, result):
        self.ranks = report["ranks"]
        self.name, self.label, self.options = system["name"], result["label"], result["options"]
        self.rows = system["rows"] / self.ranks # of a rank
        self.iteration, self.setup = 1e6 * result["iteration_s"], 1e3 * result["setup_s"]
        self.iterations = result["iterations"]
        self.sum, self.exchange = 1e6 * result.get("sum_s", 0), 1e6 * result.get("exchange_s", 0)
        sizes = [int(s) for s in re.findall(r"\d+", self.name.partition(":")[2])]
        self.face = sizes[0] * (sizes[1] if len(sizes) > 1 else sizes[0]) if sizes else 0 # of a slab; 0: not known
        self.overlap = "overlap 1" in self.options
        self.exchanges = 3 if self.overlap else 1
        steps, power = (re.search(key + r" (\d+)", self.options) for key in ("max_steps", "sfsai_power"))
        self.layers = int(power[1]) if power else min(int(steps[1]), 5) if steps else 5 # the defaults
        self.gathered = self.layers * self.face if self.overlap else 0
        found = re.search(r"G: (\d+) of its nonzeros are in columns of other ranks", "\n".join(result["view"]))
        self.foreign = int(found[1]) / self.face if found and self.face else 0.0 # of G, for each row of a face
        self.kind = re.sub(r" -pc_\w+_overlap \d", "", self.options) # the same set on one GPU
        self.by_kernels = "write to the other GPUs" in result["communication"]
        self.commit = report["commit"][:7]
        self.where = f"{machine(report)}, commit {self.commit}"


def is_seven_points(name):
    return "poisson3d7:" in name


def load(paths, wanted=is_seven_points):
    runs = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        for system in report["systems"]:
            runs += [Run(report, system, r) for r in system["results"] if r["status"] == "ok" and "-mpi" not in r["label"]
                     and r["ksp_type"] == "cgfused" and wanted(system["name"])]
    return runs


class Line:
    """offset + rows * slope of two sizes on one GPU"""

    def __init__(self, points):
        points = sorted(set(points))
        if len(points) < 2:
            raise SystemExit("ranks_model: two sizes on one GPU are needed for each set")
        (n0, t0), (n1, t1) = points[0], points[-1]
        self.slope = (t1 - t0) / (n1 - n0)
        self.offset = t0 - n0 * self.slope

    def __call__(self, rows):
        return self.offset + rows * self.slope


def exchange_us(bytes_, messages, machines):
    a = ASSUMED
    if machines == 1:
        return a["us of an exchange within a machine"] + 1e-3 * bytes_ / a["GB/s between GPUs of a machine"]
    return messages * a["us of a message between machines"] + 1e-3 * bytes_ / a["GB/s between machines, a GPU"]


def neighbours_below(ranks):
    """Faces of a box towards ranks with lower numbers."""
    return min(3, math.ceil(math.log2(ranks)))


def least_squares(rows, times, expected):
    """Factors of the columns that add up to what the times have beyond what is expected, relative to the times."""
    rest = [(t - e) / t for t, e in zip(times, expected)]
    basis, above = [], [] # the columns made orthonormal, and what each had of those before it and of itself
    for column in zip(*rows):
        v = [c / t for c, t in zip(column, times)]
        size, parts = math.sqrt(sum(b * b for b in v)), []
        for q in basis:
            parts.append(sum(a * b for a, b in zip(q, v)))
            v = [b - parts[-1] * a for a, b in zip(q, v)]
        norm = math.sqrt(sum(b * b for b in v))
        basis.append([b / norm for b in v] if norm > 1e-12 * size else [0.0] * len(v)) # the latter: a column that is not needed
        above.append(parts + [norm])
    fit = [0.0] * len(basis)
    for k in reversed(range(len(fit))):
        known = sum(above[later][k] * fit[later] for later in range(k + 1, len(fit)))
        if any(basis[k]):
            fit[k] = (sum(a * b for a, b in zip(basis[k], rest)) - known) / above[k][k]
    return fit


class Model:
    def __init__(self, one, two, messages, setups, others=(), check=()):
        kinds = sorted({run.kind for run in one})
        self.iteration = {k: Line([(r.rows, r.iteration) for r in one if r.kind == k]) for k in kinds}
        self.setup = {k: Line([(r.rows, r.setup) for r in one if r.kind == k]) for k in kinds}
        self.iterations = {k: Line([(round(r.rows**(1 / 3)), r.iterations) for r in one if r.kind == k]) for k in kinds}
        self.layers = {k: next(r.layers for r in one if r.kind == k) for k in kinds}
        self.two, self.messages = ([r for r in runs if r.kind in self.iteration] for runs in (two, messages))
        self.sum, self.exchange = self.fit_iterations(self.two, lambda r: [2, r.exchanges])
        self.message_sum, self.message, self.message_row = self.fit_iterations(
            self.messages, lambda r: [2, r.exchanges, r.exchanges * r.rows])
        self.foreign = {k: max((r.foreign for _, runs in setups for r in runs if r.kind == k), default=0.0) for k in kinds}
        self.made = [(path, [r for r in runs if r.kind in self.setup and self.setup[r.kind](r.rows) > SHORT])
                     for path, runs in setups]
        self.fits = [least_squares([[1, r.overlap, r.overlap * r.face, r.gathered] for r in runs], [r.setup for r in runs],
                                   [self.setup[r.kind](r.rows) for r in runs]) for _, runs in self.made]

        fitted = {(r.name, r.label) for r in self.two}
        self.reference = {(r.name, r.kind): r for r in others}
        self.checked = [r for r in check if r.kind in self.iteration and (r.name, r.label) not in fitted]

    def fit_iterations(self, runs, columns):
        return least_squares([columns(r) for r in runs], [r.iteration for r in runs],
                             [self.iteration[r.kind](r.rows) for r in runs])

    def by_messages(self, run):
        """us of an iteration on two GPUs whose exchanges are NCCL's messages."""
        return (self.iteration[run.kind](run.rows) + 2 * self.message_sum
                + run.exchanges * (self.message + run.rows * self.message_row))

    def alone(self, run, what):
        """The own work of a rank, `iteration` or `setup`, on the line of the set, or on another one with the same offset."""
        line, reference = getattr(self, what)[run.kind], self.reference.get((run.name, run.kind))
        if not reference:
            return line(run.rows)
        return line.offset + (getattr(reference, what) - line.offset) * run.rows / reference.rows

    def on_two(self, run):
        """us of an iteration that two GPUs add."""
        return 2 * self.sum + run.exchanges * self.exchange

    def check_set_up(self, run):
        """ms of a set-up, or None: with an overlap the model knows what rows with 7 points cost."""
        own = self.alone(run, "setup")
        if own <= SHORT or run.overlap and not is_seven_points(run.name):
            return None
        agreement, gather, of_face, of_row = self.fits[0]
        return own + agreement + (gather + run.face * of_face + run.gathered * of_row if run.overlap else 0)

    def parts(self, kind, rows, ranks, exchanges, face):
        """The parts of an iteration by name, us."""
        if ranks == 1:
            return {"own work": self.iteration[kind](rows)}
        machines = math.ceil(ranks / ASSUMED["gpus of a machine"])
        own = self.iteration[kind](rows)
        if machines == 1:
            parts = {"own work": own, "sums": 2 * self.sum, "exchanges behind products": exchanges * self.exchange}
        else:
            parts = {"own work": own,
                     "sums": 2 * (self.message_sum + ASSUMED["us of a sum for each doubling of machines"] * math.log2(machines)),
                     "exchanges behind products": exchanges * (self.message + rows * self.message_row)}
        if ranks > 2:
            hidden = own / (2 + exchanges) # a product's part of the iteration
            sizes = [6 * face] + [3 * face * ASSUMED["layers of G that are exchanged"]] * (exchanges - 1)
            messages = [6] + [3] * (exchanges - 1)
            parts["exchanges longer than products"] = sum(max(0.0, exchange_us(8 * size, count, machines) - hidden)
                                                          for size, count in zip(sizes, messages))
        return parts

    def iterate(self, *what):
        return sum(self.parts(*what).values())

    def set_up(self, run, fit):
        return sum(self.set_up_parts(run.kind, run.rows, 2, run.face if run.overlap else 0, run.gathered, fit).values())

    def set_up_parts(self, kind, rows, ranks, face, gathered, fit=0):
        """The parts by name, ms, of a set-up that gathers so many rows behind faces of so many, or none."""
        parts = {"own work": self.setup[kind](rows)}
        if ranks == 1 or parts["own work"] < SHORT:
            return parts
        agreement, gather, of_face, of_row = self.fits[fit]
        parts["agreements"] = agreement
        if face:
            parts.update({"gathering rows": gather, "rows of faces": face * of_face, "gathered rows": gathered * of_row})
        machines = math.ceil(ranks / ASSUMED["gpus of a machine"])
        if machines > 1:
            parts.update(self.set_up_between(kind, machines, neighbours_below(ranks), face, gathered))
        return parts

    def set_up_between(self, kind, machines, neighbours, face, gathered):
        """The parts that a network between machines adds, ms."""
        a, c = ASSUMED, COUNTED
        one = 1e-3 * a["us of a sum for each doubling of machines"] * math.log2(machines)
        if not face:
            return {"agreements between machines": c["agreements of a set-up whose factor stays on its rank"] * one}
        exchanges, messages = c["exchanges of it"], c["messages of it for each lower-numbered neighbour"] * neighbours
        size = (gathered * c["bytes of a gathered row"] + face * (
            c["bytes of a row of a face that is asked for"] + self.foreign[kind] * c["bytes of an entry of G on another rank"]
            + a["layers of G that are exchanged"] * c["bytes of a row that the exchanges of G and G^T bring"]))
        return {"agreements between machines": c["agreements of one whose factor reaches other ranks"] * one,
                "messages between machines": 1e-3 * (
                    exchanges * a["us of a message between machines"]
                    + (messages - exchanges) * a["us of each further message of an exchange in a set-up"]),
                "bytes between machines": 1e-6 * size / a["GB/s between machines, a GPU"]}

    def set_up_box(self, kind, side, ranks, exchanges):
        """The parts of a set-up with a cube of so many points a side for each rank."""
        face = neighbours_below(ranks) * side * side if exchanges > 1 else 0
        return self.set_up_parts(kind, side**3, ranks, face, face * self.layers[kind])

    def solve(self, kind, side, ranks, exchanges):
        """Set-up and solve of a cube of Poisson's equation whose sides grow with the ranks, s. Iterations grow like the side, from
        those on one GPU; block-local factors, which need more of them, are not in it."""
        iterations = self.iterations[kind](side) * ranks**(1 / 3)
        return (1e-3 * sum(self.set_up_box(kind, side, ranks, exchanges).values()),
                1e-6 * iterations * self.iterate(kind, side**3, ranks, exchanges, side * side))


def report(model, out):
    say = lambda text="": print(text, file=out) # noqa: E731
    say("# A model of cgfused on many GPUs\n")
    say("Two GPUs with a rank on each, NCCL.\n")
    worst = []
    for where, runs, time, fitted in (
            ("Kernels write to the other GPU", model.two, lambda r: model.iterate(r.kind, r.rows, 2, r.exchanges, r.face),
             f"a sum over two ranks {model.sum:.1f} us, an exchange that a product hides {model.exchange:.1f} us"),
            ("Exchanges are NCCL's messages", model.messages, model.by_messages,
             f"a sum over two ranks {model.message_sum:.1f} us, an exchange that a product hides {model.message:.1f} us and "
             f"{1e6 * model.message_row:.1f} us for each million rows of a rank")):
        say(f"{where} ({runs[0].where}). Fitted: {fitted}.\n")
        say("| system | set | us an iteration | model | % |\n|:--|:--|--:|--:|--:|")
        errors = []
        for r in runs:
            t = time(r)
            errors.append(100 * (t / r.iteration - 1))
            say(f"| {r.name} | {r.label} | {r.iteration:.1f} | {t:.1f} | {errors[-1]:+.0f} |")
        say()
        worst.append(max(map(abs, errors)))
    for k, (path, runs) in enumerate(model.made):
        agreement, gather, of_face, of_row = model.fits[k]
        say(f"Set-ups of {os.path.basename(path)}, commit {runs[0].commit}. Fitted: agreements {agreement:.2f} ms, gathering rows "
            f"{gather:.2f} ms, {1e6 * of_face:.0f} ns for each row of a face and {1e6 * of_row:.0f} ns for each row gathered.\n")
        say("| system | set | ms | model | % |\n|:--|:--|--:|--:|--:|")
        errors = []
        for r in runs:
            t = model.set_up(r, k)
            errors.append(100 * (t / r.setup - 1))
            say(f"| {r.name} | {r.label} | {r.setup:.2f} | {t:.2f} | {errors[-1]:+.0f} |")
        say()
        worst.append(max(map(abs, errors)))
    say("The largest errors of these tables, whose runs the model is fitted to, are " + ", ".join(f"{w:.0f} %" for w in worst[:-1])
        + f" and {worst[-1]:.0f} %.\n")
    if model.checked:
        check_table(model, say)
    say("## More GPUs\n")
    say("Beyond two GPUs every time is a prediction: nothing was measured there. The model assumes: "
        + ", ".join(f"{key}: {value:g}" for key, value in ASSUMED.items()) + ". Ranks are boxes with six faces. Kernels write to "
        "other GPUs on one machine alone; with more machines exchanges are NCCL's messages. These were measured with up to "
        f"{max(r.rows for r in model.messages) / 1e6:.1f} million rows a GPU. "
        "With several machines all messages of a rank go from one to another, and set-ups exchange by MPI, which is GPU-aware as "
        f"in {os.path.basename(model.made[0][0])}. That ranks wait for the slowest of them is not in the model.\n")
    say("What a set-up sends is counted, with overlap 1, 7 points and numbers of 32 bits: "
        + ", ".join(f"{key}: {value:g}" for key, value in COUNTED.items()) + ". For each row of a face G has on another rank "
        + " and ".join(f"{model.foreign[k]:.1f} entries with `{k}`" for k in model.iteration if "fsai" in k) + ".\n")
    say("Weak scaling, us an iteration (and as a multiple of one GPU's), a prediction for more than two GPUs:\n")
    say("| unknowns a GPU | set | exchanges | " + " | ".join(f"{p:,}" for p in PREDICTED) + " |")
    say("|--:|:--|--:|" + "--:|" * len(PREDICTED))
    for side in (121, 201):
        for kind in model.iteration:
            for exchanges in (1, 3) if "fsai" in kind else (1,):
                times = [model.iterate(kind, side**3, p, exchanges, side * side) for p in PREDICTED]
                say(f"| {side}³ | `{kind}` | {exchanges} | " + " | ".join(f"{t:.0f} ({t / times[0]:.2f})" for t in times) + " |")
    say("\nWeak scaling, ms of set-up + ms of the solve to 1e-8, a prediction for more than two GPUs, where iterations grow like "
        "the side of the whole cube; factors reach other ranks:\n")
    say("| unknowns a GPU | set | " + " | ".join(f"{p:,}" for p in PREDICTED) + " |")
    say("|--:|:--|" + "--:|" * len(PREDICTED))
    for side in (121, 201):
        for kind in model.iteration:
            times = [model.solve(kind, side, p, 3 if "fsai" in kind else 1) for p in PREDICTED]
            say(f"| {side}³ | `{kind}` | " + " | ".join(f"{1e3 * a:.1f} + {1e3 * b:.0f}" for a, b in times) + " |")
    set_up_table(model, say)
    few, many = PAPER
    say("\nBeside this, section 5.3 of Isotton, Janna and Bernaschi: Poisson's equation with 7 points and 1,771,561 unknowns, "
        f"121³, for each of {few} to {many} GPUs (V100), aFSAI that reaches other ranks. Their figure 5.10 has no table; the "
        "text says that the iterations grow, and that a set-up and an iteration do not change, or only slightly. The model for the "
        f"same, from {few} to {many} GPUs:\n")
    say("| set | iterations | an iteration | set-up |\n|:--|--:|--:|--:|")
    for kind in (k for k in model.iteration if "fsai" in k):
        setups, solves = zip(*(model.solve(kind, 121, p, 3) for p in PAPER))
        times = [model.iterate(kind, 121**3, p, 3, 121 * 121) for p in PAPER]
        say(f"| `{kind}` | x {solves[1] / solves[0] / (times[1] / times[0]):.2f} | x {times[1] / times[0]:.2f} "
            f"| x {setups[1] / setups[0]:.2f} |")
    say("\nWhat ends weak scaling is the number of iterations, which grows like the cube root of the number of GPUs and is "
        f"{PREDICTED[-1]**(1 / 3):.1f} times that of one GPU on {PREDICTED[-1]:,}. Of an iteration on {PREDICTED[-1]:,} GPUs with "
        "121³ unknowns each, these parts are not the rank's own work, in us:\n")
    for kind in model.iteration:
        parts = model.parts(kind, 121**3, PREDICTED[-1], 3 if "fsai" in kind else 1, 121 * 121)
        say(f"- `{kind}`: " + ", ".join(f"{name} {value:.0f}" for name, value in parts.items() if name != "own work"))
    say("\nThe local size below which what is not the rank's own work is the larger part, on 10,000 GPUs:\n")
    for kind in model.iteration:
        sides = [n for n in range(20, 400) if model.iterate(kind, n**3, 10000, 3 if "fsai" in kind else 1, n * n)
                 > 2 * model.iteration[kind](n**3)]
        side = max(sides) if sides else 20
        parts = model.parts(kind, side**3, 10000, 3 if "fsai" in kind else 1, side * side)
        say(f"- `{kind}`: {side if sides else 'under 20'}³ unknowns a GPU. There, in us: "
            + ", ".join(f"{name} {value:.0f}" for name, value in parts.items()))


def set_up_table(model, say):
    """The parts of set-ups whose factors reach other ranks, and what those add whose factors do not."""
    say("\nThe parts of such a set-up, ms. Own work is measured on one GPU. The four parts behind it are fitted to two GPUs: "
        "agreements and gathering stay, and the rows grow with the faces towards lower-numbered ranks, which are one on 2 GPUs and "
        "three on 8 and more. For the parts between machines numbers are counted, and times assumed.\n")
    say("| unknowns a GPU | set | part | " + " | ".join(f"{p:,}" for p in PREDICTED) + " |")
    say("|--:|:--|:--|" + "--:|" * len(PREDICTED))
    for side in (121, 201):
        for kind in (k for k in model.iteration if "fsai" in k):
            parts = [model.set_up_box(kind, side, p, 3) for p in PREDICTED]
            head = f"{side}³ | `{kind}`"
            for name in parts[-1]:
                say(f"| {head} | {name} | " + " | ".join(f"{p[name]:.2f}" if name in p else "" for p in parts) + " |")
                head = " | "
            say("|  |  | all | " + " | ".join(f"{sum(p.values()):.2f}" for p in parts) + " |")
    few, last = PAPER[0], PREDICTED[-1]
    alone = [1e3 * model.set_up_box(next(k for k in model.iteration if "fsai" in k), 121, p, 1)["agreements between machines"]
             for p in (few, last)]
    count = COUNTED["agreements of a set-up whose factor stays on its rank"]
    say(f"\nA set-up whose factor stays on its rank has {count} agreements, which take {alone[0]:.0f} us more on {few} GPUs than "
        f"on one machine, and {alone[1]:.0f} us more on {last:,}.")


def check_table(model, say):
    """Runs that took no part in a fit. Their errors by system, of iterations and of set-ups."""
    say("## Runs that the model is not fitted to\n")
    say("Two GPUs whose kernels write to the other one. An iteration has the sums and exchanges of the first table, and a set-up "
        "the agreements of the first table of set-ups, and with an overlap what gathering takes there. Own work with 7 points is "
        "on the line through the two sizes of one GPU. For another system it has the constant part of this line, and the rest of "
        "the system's own time on one GPU is divided by two, as the rows are. `jacobi` has no set-up to speak of, and for "
        "set-ups that gather rows of other systems there is no model.\n")
    say("| system | set | us an iteration | model | % | set-up, ms | model | % |\n|:--|:--|--:|--:|--:|--:|--:|--:|")
    errors = {}
    for r in model.checked:
        mine = errors.setdefault(r.name, {"an iteration": [], "a set-up": []})
        t = model.alone(r, "iteration") + model.on_two(r)
        mine["an iteration"].append(100 * (t / r.iteration - 1))
        cells = f"| {r.name} | {r.label} | {r.iteration:.1f} | {t:.1f} | {mine['an iteration'][-1]:+.0f} |"
        t = model.check_set_up(r)
        if t:
            mine["a set-up"].append(100 * (t / r.setup - 1))
            say(f"{cells} {r.setup:.2f} | {t:.2f} | {mine['a set-up'][-1]:+.0f} |")
        else:
            say(cells + " | | |")
    say("\nThe largest errors of runs that the model is not fitted to are, with " + "; with ".join(
        f"{name}, " + " and ".join(f"{max(map(abs, e)):.0f} % of {what}" for what, e in mine.items() if e)
        for name, mine in errors.items()) + ".")
    say()


def plot(model, path):
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), constrained_layout=True)
    ranks = [2**k for k in range(14)]
    for axis, side, hollow in zip(axes, (121, 201), ("by messages", "by messages or not fitted")):
        for color, kind in zip(plt.rcParams["axes.prop_cycle"].by_key()["color"], model.iteration):
            for exchanges, style in ((1, ":"), (3, "-")) if "fsai" in kind else ((1, "-"),):
                axis.semilogx(ranks, [model.iterate(kind, side**3, p, exchanges, side * side) for p in ranks], style, color=color,
                              base=2, label=f"{kind.split('-pc_type ')[1]}, {exchanges} exchange{'s' if exchanges > 1 else ''}")
            for runs, fill in ((model.two, color), (model.messages, "none"), (model.checked, "none")):
                for r in runs:
                    if r.kind == kind and is_seven_points(r.name) and round(r.rows) == side**3:
                        axis.plot([2], [r.iteration], "o" if r.overlap or "fsai" not in kind else "^", color=color,
                                  markerfacecolor=fill)
        axis.set_title(f"{side}³ unknowns a GPU")
        axis.set_xlabel(f"GPUs (measured: 1 and 2; hollow: {hollow}); 8 a machine")
        axis.set_ylabel("µs an iteration")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=7)
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("one", nargs="+", help="results on one GPU")
    parser.add_argument("--two", nargs="+", required=True, help="results on two GPUs whose kernels write to the other one")
    parser.add_argument("--messages", nargs="+", required=True, help="results on two GPUs by NCCL's messages")
    parser.add_argument("--setups", nargs="+", required=True, help="results on two GPUs with set-ups")
    parser.add_argument("--check", nargs="+", default=[], help="the same, to be compared and not fitted")
    parser.add_argument("-o", "--output", help="plot")
    parser.add_argument("--md", help="table")
    options = parser.parse_args()
    one, two, messages = load(options.one), load(options.two), load(options.messages)
    setups = [(path, load([path])) for path in options.setups]
    others, check = load(options.one, lambda name: not is_seven_points(name)), load(options.check, lambda name: True)
    if {r.ranks for r in one} != {1} or {r.ranks for r in two + messages + [r for _, runs in setups for r in runs]} != {2}:
        raise SystemExit("ranks_model: results of one rank, and behind the options of two ranks")
    if {r.ranks for r in check} - {2} or not all(r.by_kernels for r in check):
        raise SystemExit("ranks_model: --check takes results of two ranks by kernels")
    model = Model(one, two, messages, setups, others, check)
    with open(options.md, "w", encoding="utf-8") if options.md else sys.stdout as out:
        report(model, out)
    if options.output:
        plot(model, options.output)


if __name__ == "__main__":
    main()
