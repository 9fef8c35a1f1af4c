"""What finepc-try prints and writes: the table, the options file, the JSON and the convergence plot."""
import dataclasses
import json
import os
import tempfile

from .advice import name, seconds
from .matrix import TryError

COLUMNS = ("candidate", "on", "set-up", "solve", "total", "relative", "iterations", "memory", "true residual", "first use", "warm",
           "result")


def size(value):
    if value is None:
        return ""
    for unit in ("B", "KB", "MB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} GB"


def short(row):
    """The end of a progress line"""
    if row.ok:
        text = f"{seconds(row.total_s)}, {row.iterations} iterations, true residual {row.true_residual:.1e}"
    else:
        text = row.status + (f" at {row.true_residual:.1e}" if row.status == "missed" else "")
    return text + (f" ({row.note})" if row.note else "")


def cells(row, least):
    solved = row.total_s is not None
    warm = f"{row.warm_runs} run" + ("s" if row.warm_runs > 1 else "") if row.warm_runs else "no"
    return (row.label, row.backend, seconds(row.setup_s), seconds(row.solve_s), seconds(row.total_s),
            f"{row.total_s / least:.3g}" if solved and least else "", str(row.iterations) if solved else "", size(row.memory_bytes),
            f"{row.true_residual:.1e}" if row.true_residual is not None else "", seconds(row.first_s), warm, row.status)


def ordered(rows):
    """Those that reached the tolerance first, the fastest before the slower ones"""
    return sorted(rows, key=lambda row: (not row.ok, row.total_s if row.total_s is not None else float("inf")))


def table(rows):
    least = min((row.total_s for row in rows if row.ok), default=None)
    lines = [COLUMNS] + [cells(row, least) for row in ordered(rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join("  ".join(cell.ljust(width) if k in (0, 1, len(COLUMNS) - 1) else cell.rjust(width)
                               for k, (cell, width) in enumerate(zip(line, widths))).rstrip() for line in lines)


def machine(result):
    where = "; ".join(f"{backend}: {device}" for backend, device in result.device.items())
    ranks = f"{result.ranks} rank" + ("s" if result.ranks > 1 else "")
    return f"{where}; {ranks}; PETSc {result.petsc}, finepc {result.commit}"


def text(result):
    """All that is printed at the end"""
    parts = [f"\n{result.name}, to a true residual of {result.rtol:g} of the right-hand side. Set-up, solve and total are of the "
             f"fastest warm run,\nor of the first use where there is no warm run; memory is what was taken beyond the matrix.\n"
             f"{machine(result)}\n", table(result.rows)]
    if result.winner:
        parts.append(f"\nThe fastest is {name(result.winner)}, with {seconds(result.winner.total_s)}:\n"
                     + "".join(f"  {line}\n" for line in result.options.splitlines()))
        if result.runner_up:
            parts[-1] += (f"The next is {name(result.runner_up)}, with {seconds(result.runner_up.total_s)}: "
                          f"{result.runner_up.options}")
            spreads = [row.spread for row in (result.winner, result.runner_up) if row.spread is not None]
            if spreads:
                apart = result.runner_up.total_s / result.winner.total_s - 1
                verdict = "either may be the faster one" if apart <= max(spreads) else "it stays the faster one"
                parts[-1] += (f"\nBoth were run twice: they are {100 * apart:.1f} % apart, and two runs of one differ by up to "
                              f"{100 * max(spreads):.1f} %, so that {verdict}.")
        parts += result.advice
    elif not any(row.ok for row in result.rows):
        parts.append("\nNothing reached the tolerance in time. A higher --time-limit or a larger --rtol may help.")
    parts += result.notes
    parts += [f"{kind}: {path}" for kind, path in result.files.items()]
    return "\n".join(parts)


# ------------------------------------------- files --------------------------------------------


def check_folder(folder):
    """An error if nothing can be written there. The folder itself is not made before there is something to write."""
    if not folder:
        return
    place = os.path.abspath(folder)
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise TryError(f"Cannot write to {folder}: {place}: {error.strerror}") from error


def write_files(result, folder, say=lambda text: None):
    """Writes what there is to write. A file that cannot be written becomes one of the result's notes, and what was there before
    stays; the others are written all the same."""
    if not folder:
        return
    stem = os.path.join(folder, "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in result.name))
    writers = {"options": (".opts", _write_options), "json": (".json", _write_json), "plot": (".png", plot)}
    for kind, (ending, write) in writers.items():
        path, part = stem + ending, stem + ".part" + ending
        try:
            os.makedirs(folder, exist_ok=True)
            if not write(result, part):
                continue
            os.replace(part, path)
            result.files[kind] = path
            said = f"{kind}: {path}"
        except Exception as error:  # of matplotlib's there are many
            said = _why_not(path, error)
            result.notes.append(said)
        finally:
            if os.path.exists(part):
                os.remove(part)
        say(said + "\n")


def _why_not(path, error):
    if isinstance(error, ImportError):
        return f"There is no plot, since this Python cannot import matplotlib: {error}."
    reason = error.strerror if isinstance(error, OSError) and error.strerror else f"{type(error).__name__}: {error}"
    return f"The file {path} was not written: {reason}."


def _write_options(result, path):
    if not result.winner:
        return False
    with open(path, "w", encoding="utf-8") as file:
        file.write(options_file(result))
    return True


def _write_json(result, path):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(as_json(result), file, indent=1)
        file.write("\n")
    return True


def options_file(result):
    row = result.winner
    return (f"# The fastest of {len(result.rows)} candidates that finepc-try ran on {result.name}: {seconds(row.total_s)}, "
            f"{row.iterations} iterations,\n# true residual {row.true_residual:.1e}. {machine(result)}\n"
            f"# your_program -options_file {result.name}.opts, where matrix and solver are set from options; a DM wants\n"
            f"# -dm_mat_type and -dm_vec_type instead.\n{result.options}")


def as_json(result):
    rows = []
    for row in result.rows:
        fields = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
        fields["history"] = [value for value in row.history if value is not None]
        rows.append(fields)
    return {"program": "finepc-try", "matrix": result.name, "rtol": result.rtol, "ranks": result.ranks, "device": result.device,
            "petsc": result.petsc, "commit": result.commit,
            "properties": {key: _number(value) for key, value in dataclasses.asdict(result.properties).items()},
            "notes": result.notes, "winner": _identity(result.winner), "runner_up": _identity(result.runner_up),
            "options": result.options, "advice": result.advice, "rows": rows}


def _number(value):
    return None if isinstance(value, float) and value != value else value  # JSON has no NaN


def _identity(row):
    return {"label": row.label, "backend": row.backend} if row else None


def plot(result, path):
    """Residual norms by iterations and by seconds; whether there was something to plot. What grows leaves the axes above."""
    import matplotlib
    from matplotlib.figure import Figure
    rows = [row for row in ordered(result.rows) if row.iterations and _curve(row)]
    if not rows:
        return False
    figure = Figure(figsize=(12, 5), layout="constrained")  # not of pyplot, which belongs to the program that calls this
    left, right = figure.subplots(1, 2, sharey=True)
    colors = matplotlib.colormaps["tab20"]
    for k, row in enumerate(rows):
        curve = _curve(row)
        steps = [j * row.history_stride for j in range(len(curve))]
        style = {"color": colors(k % 20), "linewidth": 2.6 if row is result.winner else 1.2,
                 "linestyle": "--" if row.baseline else "-"}
        label = row.label + (", GPU" if row.backend == "cuda" else "") + ("" if row.ok else f" ({row.status})")
        left.loglog(steps, curve, label=label, **style)
        right.loglog([row.setup_s + j * row.solve_s / row.iterations for j in steps], curve, **style)
    good = [row for row in rows if row.ok]
    if good:  # one that did not converge leaves the axes
        left.set_xlim(1, 1.3 * max(row.iterations for row in good))
        right.set_xlim(0.05 * min(row.total_s for row in good), 1.3 * max(row.total_s for row in good))
    highest = max((value for row in good for value in _curve(row)), default=1)
    left.set_ylim(0.1 * result.rtol, 2 * min(max(highest, 1), 1e4))
    left.axhline(result.rtol, color="black", linewidth=0.8)
    right.axhline(result.rtol, color="black", linewidth=0.8)
    left.set_xlabel("iterations")
    right.set_xlabel("seconds, set-up included")
    left.set_ylabel("residual norm that the solver tests, relative to the first")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    right.legend(*left.get_legend_handles_labels(), loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)
    figure.suptitle(f"{result.name}: {result.properties.rows:,} rows, {result.properties.entries:,} entries\n{machine(result)}",
                    fontsize=10)
    figure.savefig(path, dpi=130)
    return True


def _curve(row):
    values = [value for value in row.history if value is not None]
    return [value / values[0] for value in values] if values and values[0] > 0 else []
