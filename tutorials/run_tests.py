#!/usr/bin/env python3
"""Runs the TEST block at the end of a tutorial and compares what it prints with output/*.out:

    run_tests.py --program ex1 --library libfinepc.so [--mpiexec mpiexec] [--update] ex1.cxx

It understands what these tutorials need of PETSc's test language: test, testset, suffix, nsize, args with {{a b}} and
{{a b}separate output}, requires: cuda, filter, output_file. ${FINEPC_LIBRARY} stands for the library.

Text must be the same. Numbers may differ as they do between machines: iterations by 2 or 5 %, a residual (a number with an
exponent) by a factor of 10 upwards, other numbers by 1 %."""
import argparse
import itertools
import os
import re
import subprocess
import sys
import tempfile

NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")


def read_block(source):
    """The TEST block as a list of tests: dictionaries of the keys, those of a testset filled in."""
    text = open(source).read()
    block = re.search(r"/\*TEST\n(.*?)TEST\*/", text, re.S)
    if not block:
        sys.exit(f"{source} has no TEST block")
    tests, testset = [], {}
    current, in_set, set_indent = None, False, 0
    for line in block.group(1).splitlines():
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        key, _, value = (part.strip() for part in line.partition(":"))
        if in_set and indent <= set_indent:
            in_set, testset = False, {}
        if key == "testset":
            in_set, set_indent, testset = True, indent, {}
            current = testset
        elif key == "test":
            current = {"set": testset if in_set else {}}
            tests.append(current)
        elif key in ("suffix", "nsize", "args", "requires", "filter", "output_file"):
            current[key] = value
        else:
            sys.exit(f"{source}: unknown key {key} in the TEST block")
    for test in tests:
        outer = test.pop("set")
        args = " ".join(part for part in (outer.get("args"), test.get("args")) if part)
        test.update({k: v for k, v in outer.items() if k not in test})
        test["args"] = args
    return tests


def variants(args):
    """(arguments, suffix of the output file) for every combination of the loops in the arguments."""
    loops = list(re.finditer(r"-(\w+) \{\{(.*?)\}(separate output)?\}", args))
    for values in itertools.product(*(loop.group(2).split() for loop in loops)):
        expanded, suffix = args, ""
        for loop, value in zip(loops, values):
            expanded = expanded.replace(loop.group(0), f"-{loop.group(1)} {value}")
            if loop.group(3):
                suffix += f"_{loop.group(1)}-{value}"
        yield expanded, suffix


def close(found, expected, iterations):
    x, y = float(found), float(expected)
    if iterations and "." not in expected:
        return abs(x - y) <= max(2, 0.05 * abs(y))
    if "e" in expected.lower():
        return 0 <= x <= 10 * y
    return abs(x - y) <= 0.01 * abs(y)


def differences(found, expected):
    found, expected = found.rstrip().splitlines(), expected.rstrip().splitlines()
    if len(found) != len(expected):
        yield f"{len(found)} lines instead of {len(expected)}"
    for f, e in ((f.rstrip(), e.rstrip()) for f, e in zip(found, expected)):  # monitors of PETSc 3.18 end lines with a space
        numbers = zip(NUMBER.findall(f), NUMBER.findall(e))
        same = NUMBER.split(f) == NUMBER.split(e) and all(close(x, y, "iterations" in e) for x, y in numbers)
        if not same:
            yield f"found    {f}\n      expected {e}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("--program", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    folder, name = os.path.split(os.path.abspath(options.source))
    name = os.path.splitext(name)[0]
    environment = dict(os.environ, FINEPC_LIBRARY=os.path.abspath(options.library))
    have_device = os.path.exists("/proc/driver/nvidia/version")
    passed = failed = skipped = 0

    for test in read_block(options.source):
        for args, variant in variants(test["args"]):
            suffix = test["suffix"] + variant
            output = os.path.join(folder, test.get("output_file", f"output/{name}_{suffix}.out"))
            if test.get("requires") == "cuda" and not have_device:
                print(f"skip {name}_{suffix}: no device")
                skipped += 1
                continue
            ranks = int(test.get("nsize", 1))
            launcher = f"{options.mpiexec} -n {ranks} " if ranks > 1 else ""
            command = f"set -o pipefail; {launcher}{os.path.abspath(options.program)} {args} 2>&1"
            if "filter" in test:
                command += f" | {test['filter']}"
            shell = ["bash", "-c", command]
            with tempfile.TemporaryDirectory() as work:
                run = subprocess.run(shell, cwd=work, env=environment, stdout=subprocess.PIPE, text=True, timeout=300)
            if options.update and "output_file" not in test:
                with open(output, "w") as f:
                    f.write(run.stdout)
            problems = [] if run.returncode == 0 else [f"exit code {run.returncode}:\n{run.stdout}"]
            if not os.path.exists(output):
                problems.append(f"{output} is missing")
            elif not problems:
                problems = list(differences(run.stdout, open(output).read()))
            print(("FAIL " if problems else "ok   ") + f"{name}_{suffix}")
            for problem in problems:
                print("      " + problem)
            failed += bool(problems)
            passed += not problems
    print(f"{name}: {passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
