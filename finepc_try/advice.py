"""What the measured times mean for more than one right-hand side, and for many time steps."""

COUNTS = (1, 10, 100, 1000)


def many_solves(row, count):
    """Seconds for so many right-hand sides with one set-up"""
    return row.setup_s + row.solve_s + (count - 1) * row.again_s


def one_step(row):
    """Seconds of a time or Newton step: new values on the same nonzeros, and one solve"""
    return (row.refill_s if row.refill_s is not None else row.setup_s) + row.again_s


def sentences(fit):
    """For rows that reached the tolerance, the fastest for one right-hand side first"""
    if not fit:
        return
    groups = []
    for count in COUNTS:
        best = min(fit, key=lambda row: many_solves(row, count))
        if groups and groups[-1][0] is best:
            groups[-1][1].append(count)
        else:
            groups.append((best, [count]))
    if len(groups) == 1:
        best = groups[0][0]
        yield (f"Many right-hand sides with one set-up: {name(best)} stays the fastest; 100 of them take "
               f"{seconds(many_solves(best, 100))}.")
    for best, counts in groups[1:]:
        first = groups[0][0]
        yield (f"{counts[0]} right-hand sides with one set-up: {name(best)} takes {seconds(many_solves(best, counts[0]))}, "
               f"{name(first)} {seconds(many_solves(first, counts[0]))}. The former is ahead from {crossover(first, best)} on.")
    best = min(fit, key=one_step)
    new = "new values on the same nonzeros" if best.refill_s is not None else "a set-up"
    yield (f"Many time steps, in each of which the values change but not the nonzeros: {name(best)} takes "
           f"{seconds(one_step(best))} a step, {seconds(one_step(best) - best.again_s)} of them for {new}.")


def crossover(first, later):
    """From how many right-hand sides on `later` is the faster of two"""
    count = 1
    gain = first.again_s - later.again_s
    if gain > 0:
        behind = (later.setup_s + later.solve_s) - (first.setup_s + first.solve_s)
        count = 2 + int(behind / gain)
    return max(count, 2)


def name(row):
    return f'"{row.label}" on the {"GPU" if row.backend == "cuda" else "host"}'


def seconds(value):
    """Three digits, in a unit that suits"""
    if value is None:
        return ""
    if value >= 100:
        return f"{value:.0f} s"
    if value >= 1:
        return f"{value:.3g} s"
    if value >= 1e-3:
        return f"{1e3 * value:.3g} ms"
    return f"{1e6 * value:.3g} us"
