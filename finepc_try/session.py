"""try_matrix(): everything from a matrix to the winner."""
import contextlib
import dataclasses
import os
import tempfile

import numpy

from . import advice, analyse, report, run
from .candidates import afsai_steps, as_program_options, candidates, chosen, given, sent
from .matrix import TryError, load, points, write, write_vector

CLOSE = 1.1  # rows whose totals differ by less are run once more before one of them is named the fastest
FALLBACK = {"spd": "indefinite", "semidefinite": "singular"}  # what is tried where no candidate of a kind converges


@dataclasses.dataclass
class TryResult:
    """What came of a matrix. `winner` and `runner_up` are rows, or None where nothing reached the tolerance; `options` are those of
    the winner, as a program of PETSc's takes them; `advice` are sentences about several right-hand sides and time steps; `notes`
    are sentences about what else there is to know; `files` are the paths that were written, by kind: json, options, plot."""

    name: str
    properties: analyse.Properties
    rtol: float
    ranks: int
    rows: list
    winner: run.Row = None
    runner_up: run.Row = None
    options: str = ""
    advice: list = dataclasses.field(default_factory=list)
    notes: list = dataclasses.field(default_factory=list)
    device: dict = dataclasses.field(default_factory=dict)
    petsc: str = ""
    commit: str = ""
    files: dict = dataclasses.field(default_factory=dict)

    def __str__(self):
        return report.text(self)


def try_matrix(matrix, rhs=None, *, backend="auto", ranks=1, rtol=1e-8, time_limit=60.0, only=(), output=None, block_size=None,
               bench=None, library=None, progress=None, also=(), thorough=False, coordinates=None):
    """Tries on a matrix what fits it, and says what was the fastest.

    matrix: a path (Matrix Market or PETSc's binary, also with .gz or .xz) or a matrix of scipy, numpy or petsc4py.
    rhs: a vector or a path; without one that of the file is taken, or a random one from a fixed seed.
    backend: "host", "cuda", "auto", which is the GPU where there is one, or "both", which has the host beside it.
    ranks: of MPI.
    rtol: what the true residual must reach, relative to the right-hand side.
    time_limit: seconds for each candidate.
    only: labels or types to which candidates are limited, as a list or separated by commas.
    output: a folder for the JSON, the options and the plot; without one no file is written. A file that cannot be written at the
        end is a sentence in the notes of the result.
    block_size: that of the matrix instead of a guess.
    bench, library: paths of finepc_bench and libfinepc.so instead of those that are found.
    also: candidates of one's own, texts "label: options".
    thorough: more settings of each type, which takes longer.
    coordinates: of the points, for the rigid body modes of multigrid: an array with a row for each point, or a path.
    progress: a function that is given lines and parts of lines: lambda text: print(text, end="", flush=True)

    What is wrong with the matrix or an argument raises TryError; a candidate that fails is a row that says why."""
    say = progress or (lambda text: None)
    _check_options(backend, ranks, rtol, time_limit, block_size)
    report.check_folder(output)
    bench = run.find_bench(bench)
    A, b, name = load(matrix, rhs)
    say(f"{name}: looking at the matrix\n")
    properties = analyse.analyse(A)
    if block_size is not None:
        if A.shape[0] % block_size:
            raise TryError(f"{A.shape[0]} rows are no multiple of the block size {block_size}")
        properties.block_size = block_size
    for line in properties.lines():
        say(f"  {line}\n")
    result = TryResult(name, properties, rtol, ranks, [])
    b = _right_hand_side(A, b, properties, result.notes)
    x = None if coordinates is None else points(coordinates, A.shape[0], properties.block_size)
    runner = run.Runner(bench, ranks, rtol, time_limit, properties.block_size)
    backends = _backends(backend, runner, say)
    with contextlib.ExitStack() as stack:
        work = stack.enter_context(tempfile.TemporaryDirectory(prefix="finepc-try-"))
        path = os.path.join(work, "system.petsc")
        try:
            write(path, A, b)
        except OSError as error:
            raise TryError(f"Cannot write the system for the candidates to {work}: {error}; TMPDIR names another folder") from error
        del A, b
        if x is not None:
            runner.coordinates = os.path.join(work, "coordinates.petsc")
            write_vector(runner.coordinates, x)
            result.notes.append("Multigrid had the rigid body modes of the coordinates: your program has to call "
                                "MatSetNearNullSpace() for the same.")
        _try_all(runner, path, _every(runner, properties, backends, ranks, only, None, also, thorough), result, say)
        fallback = FALLBACK.get(properties.kind)
        # A direct solver takes any matrix, and says nothing about the kind.
        if fallback and not only and not any(row.ok for row in result.rows if not row.candidate.direct):
            result.notes.append("No method for positive definite matrices reached the tolerance, so that others were tried.")
            _try_all(runner, path, _every(runner, properties, backends, ranks, only, fallback, (), thorough), result, say)
        _repeat_close(runner, path, result, say)
    result.device, result.petsc, result.commit = runner.device, runner.petsc, runner.commit
    _judge(result, rtol, library, bench)
    report.write_files(result, output, say)
    return result


def _check_options(backend, ranks, rtol, time_limit, block_size):
    if backend not in ("auto", "host", "cuda", "both"):
        raise TryError(f"The backend is auto, host, cuda or both, not {backend}")
    if not 1 <= ranks <= 1024:
        raise TryError(f"There can be 1 to 1024 ranks, not {ranks}")
    if not 1e-14 <= rtol < 1:
        raise TryError(f"The tolerance must be from 1e-14 to less than 1, not {rtol:g}")
    if not 0 < time_limit <= 1e6:
        raise TryError(f"The time limit must be more than 0 and at most a million seconds, not {time_limit:g}")
    if block_size is not None and not 1 <= block_size <= 32:
        raise TryError(f"The block size can be 1 to 32, not {block_size}")


def _right_hand_side(A, b, properties, notes):
    """That of the file, or random numbers; where constants are in the null space, one for which there is a solution"""
    singular = properties.constants_in_null_space
    if b is None:
        notes.append("The right-hand side is random, from a fixed seed.")
        b = numpy.random.default_rng(0).standard_normal(A.shape[0])
        if singular:
            b = A @ b
    elif singular and properties.symmetric:
        mean = b.mean()
        if abs(mean) > 1e-12 * numpy.abs(b).max():
            notes.append("The sum of the right-hand side is not 0, so that no solution exists; its mean was taken off.")
            b = b - mean
    return b


def _backends(backend, runner, say):
    if backend == "host":
        return ["host"]
    if backend != "cuda" and not run.gpu_name():
        say("  no GPU was found: on the host\n")
        return ["host"]
    works, why = runner.has_gpu()
    if works:
        say(f"  on the GPU{': ' + run.gpu_name() if run.gpu_name() else ''}\n")
        return ["cuda"] if backend != "both" else ["cuda", "host"]
    if backend != "cuda":
        say(f"  the GPU cannot be used ({why}): on the host\n")
        return ["host"]
    raise TryError(f"The GPU cannot be used: {why}")


def _every(runner, properties, backends, ranks, only, kind, also, thorough):
    """The candidates for a matrix, without those that `only` leaves out, and those of the user's own"""
    def on(backend):
        return candidates(properties, backend, ranks, kind, runner.packages(backend), thorough)

    every = [candidate for backend in backends for candidate in on(backend)]
    if runner.sends and "cuda" in backends:
        every = sent(on("cuda"), on("host"), "host" in backends)
    if only:
        only = only.split(",") if isinstance(only, str) else list(only)
        labels = ", ".join(dict.fromkeys(candidate.label for candidate in every))
        every, unknown = chosen(every, only)
        if unknown:
            raise TryError(f"No candidate for this matrix is, or uses, {', '.join(unknown)}; there are {labels}")
    try:
        own = given(also, backends)
    except ValueError as error:
        raise TryError(str(error)) from error
    return every + [dataclasses.replace(c, sent=runner.sends and c.backend == "cuda") for c in own]


def list_candidates(matrix, *, backend="auto", ranks=1, time_limit=60.0, only=(), block_size=None, bench=None, also=(),
                    thorough=False):
    """A text with all that try_matrix() would run with these arguments, and how long it can take"""
    _check_options(backend, ranks, 1e-8, time_limit, block_size)
    A, _, name = load(matrix)
    properties = analyse.analyse(A)
    properties.block_size = block_size or properties.block_size
    runner = run.Runner(run.find_bench(bench), ranks, 1e-8, time_limit, properties.block_size)
    every = _every(runner, properties, _backends(backend, runner, lambda text: None), ranks, only, None, also, thorough)
    width = max((len(candidate.label) for candidate in every), default=0)
    lines = [f"{candidate.backend:4} {candidate.label:{width}}  {candidate.options}" for candidate in every]
    shortest = min(run.SHORTEST, time_limit)
    soon, late = advice.seconds(shortest * len(every)), advice.seconds(time_limit * len(every))
    lines.append(f"{name}: {len(every)} candidates, which take at most {soon} where one of the first solves in less than "
                 f"{shortest / run.PATIENCE:.2g} s, and {late} by the time limit of {time_limit:g} s for each.")
    return "\n".join(lines)


def _repeat_close(runner, path, result, say):
    """Where the second is nearly as fast as the first, both are run once more: what differs less from the other than from itself is
    not slower."""
    fit = _fit(result)
    close = [row for row in fit if row.total_s < CLOSE * fit[0].total_s]
    for row in close if len(close) > 1 else []:
        say(f"once more: {row.backend} {row.label}  ")
        again = runner.run(row.candidate, path)
        say(report.short(again) + "\n")
        if not again.ok or again.total_s is None:
            continue
        row.spread = abs(again.total_s - row.total_s) / min(again.total_s, row.total_s)
        if again.total_s < row.total_s:
            for field in ("setup_s", "solve_s", "total_s", "again_s", "refill_s"):
                setattr(row, field, getattr(again, field))


def _try_all(runner, path, every, result, say):
    known = {(row.backend, row.label) for row in result.rows}
    every = [candidate for candidate in every if (candidate.backend, candidate.label) not in known]
    width = max((len(candidate.label) for candidate in every), default=0)
    for number, candidate in enumerate(every, 1):
        say(f"[{number:{len(str(len(every)))}}/{len(every)}] {candidate.backend:4} {candidate.label:{width}}  ")
        row = runner.run(candidate, path)
        row.candidate = candidate
        result.rows.append(row)
        say(report.short(row) + "\n")


def _fit(result):
    """The rows that reached the tolerance, the fastest first"""
    fit = [row for row in result.rows if row.ok and row.true_residual <= 1.05 * result.rtol and row.total_s is not None]
    fit = [row for row in fit if not _lonely(row, result)]
    return sorted(fit, key=lambda row: row.total_s)


def _judge(result, rtol, library, bench):
    """The winner is the row with the least total that reached the tolerance of the true residual, which is checked here again."""
    fit = _fit(result)
    result.winner = fit[0] if fit else None
    result.runner_up = fit[1] if len(fit) > 1 else None
    if result.winner:
        lines = as_program_options(result.winner.candidate, result.properties, rtol)
        if not result.winner.baseline:
            found = library or library_of(bench)
            lines.insert(0, f"-dll_append {found}")
        result.options = "\n".join(lines) + "\n"
    result.advice = list(advice.sentences(fit))


def _lonely(row, result):
    """Whether a row is afsai, and there is none with other steps to compare it with. A note says that it is not recommended."""
    steps = afsai_steps(row.options)
    if steps is None:
        return False
    if any(other.backend == row.backend and other.total_s is not None and afsai_steps(other.options) not in (None, steps)
           for other in result.rows):
        return False
    note = (f"{advice.name(row)} is not recommended, since no other number of steps was measured beside its {steps}: "
            "one number says too little, and a few steps can be far worse than more.")
    if note not in result.notes:
        result.notes.append(note)
    return True


def library_of(bench):
    """libfinepc.so as it lies in an installation or a build folder around the program, else its name alone"""
    folder = os.path.dirname(os.path.realpath(bench))
    package = os.path.join(os.path.dirname(run.OUR_FOLDER), "finepc")  # of Python, where pip has installed both
    for place in (os.path.join(folder, os.pardir, "lib"), os.path.join(folder, os.pardir, "lib64"), package):
        path = os.path.normpath(os.path.join(place, "libfinepc.so"))
        if os.path.exists(path):
            return path
    for root, folders, names in os.walk(os.path.join(folder, os.pardir, "lib")):  # lib/x86_64-linux-gnu
        del folders[8:]
        if "libfinepc.so" in names:
            return os.path.normpath(os.path.join(root, "libfinepc.so"))
    return "libfinepc.so"
