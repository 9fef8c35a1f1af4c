"""The rules of -pc_type auto, which the library has in it: src/pc/auto/auto_rules.txt says what its lines are."""
import functools
import os

SMALL, SMALL_ENTRIES = 100_000, 3_000_000  # as in auto_rules.cxx
ELLIPTIC = 0.6
UNEVEN = 20


def words_of(properties, backend, ranks, kind, free):
    """The words that hold, as AUTOWords() has them; `free` is whether the solver takes a preconditioner that is not symmetric."""
    size = properties.block_size
    blocks = size > 1
    held = {
        "rows": True,
        "symmetric": properties.symmetric,
        "definite": kind in ("spd", "semidefinite"),
        "positive": kind in ("spd", "semidefinite") and not properties.one_sided and properties.rows >= ranks * size,
        "elliptic": not blocks and properties.nonpositive_offdiagonal >= ELLIPTIC or bool(properties.stencil),
        "stencil": bool(properties.stencil),
        "anisotropic": False,  # of which finepc-try tries both kinds
        "modes": False,  # files have none
        "dominated": False,  # a program that does not return is ended here
        "blocks": blocks,
        "uneven": properties.longest_row * properties.rows > UNEVEN * properties.entries,
        "sound": properties.rows > 0 and properties.missing_diagonal == 0,
        "small": properties.rows < SMALL and properties.entries < SMALL_ENTRIES,
        "device": backend == "cuda",
        "one_rank": ranks == 1,
        "free": free,
    }
    return {word for word, holds in held.items() if holds}


@functools.lru_cache
def table():
    """(candidates, choices): the fields of each line behind its first word"""
    here = os.path.dirname(os.path.realpath(__file__))  # the Python package has a link in the build
    places = [os.path.join(here, "auto_rules.txt"), os.path.join(here, "..", "src", "pc", "auto", "auto_rules.txt")]
    with open(next(place for place in places if os.path.exists(place)), encoding="utf-8") as f:
        lines = [[field.strip() for field in line.split("|")] for line in f if "|" in line and not line.startswith("#")]
    return [line[1:] for line in lines if line[0] == "candidate"], [line[1:] for line in lines if line[0] == "choice"]


def holds(words, held):
    return all((word[1:] not in held) if word.startswith("!") else (word in held) for word in words.split())


def fitting(held):
    """name -> options of the candidates whose words hold, each options once, without those that are there to fail over to"""
    found = {}
    for name, options, words, *_ in table()[0]:
        if holds(words, held) and options not in found.values() and name != "none":
            found[name] = options
    return found


def order(held):
    """The names of the candidates in the order in which auto would take them, and why"""
    fit = {name for name, _, words, *_ in table()[0] if holds(words, held)}
    for words, names, why, _ in table()[1]:
        if holds(words, held):
            return [name for name in [*names.replace("/", "").split(), "jacobi", "none"] if name in fit], why
    return ["jacobi", "none"], ""
