#!/usr/bin/env python3
"""Compares what ptxas says of the kernels in two logs of builds with -Xptxas -v, as a Markdown table:

    registers.py LOG_BEFORE LOG_AFTER

A row for each kernel and architecture whose registers, spilled bytes (stores and loads) or shared memory differ, or that one log
alone has, and a line with the number of those that are equal. An architecture that one log alone has is named and not compared.

Kernels are matched by their demangled names without what depends on the file or on the build: the hash in the name of an anonymous
namespace, and the list of architectures in the namespaces of CUB and Thrust. Where several files have a kernel of the same name,
or a log has a file twice, all different values are compared, and are listed with semicolons between them."""
import argparse
import re
import subprocess

ENTRY = re.compile(r"ptxas info\s*: Compiling entry function '(\w+)' for '(\w+)'")
PROPERTIES = re.compile(r"ptxas info\s*: Function properties for (\w+)")
SPILLS = re.compile(r"\d+ bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"ptxas info\s*: Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def demangle(names):
    if not names:
        return {}
    text = subprocess.run(["c++filt"], input="\n".join(names), stdout=subprocess.PIPE, text=True, check=True).stdout
    # c++filt itself leaves the hash out of those namespaces whose names it knows as anonymous.
    text = re.sub(r"_GLOBAL__N__\w+", "(anonymous namespace)", re.sub(r"\b(CUB|THRUST)(_\d+)_SM(_\d+)+", r"\1\2", text))
    return dict(zip(names, text.splitlines()))


def read(path):
    """(kernel, architecture) -> set of (registers, spill stores, spill loads, shared memory)"""
    found = []
    kernel, spills, in_kernel = None, (0, 0), False
    with open(path, errors="replace") as log:
        for line in log:
            if match := ENTRY.search(line):
                kernel, spills = match.groups(), (0, 0)
            elif match := PROPERTIES.search(line):
                in_kernel = kernel is not None and match.group(1) == kernel[0]  # or a function that the kernel calls
            elif (match := SPILLS.search(line)) and in_kernel:
                spills = tuple(map(int, match.groups()))
            elif (match := USED.search(line)) and kernel:
                shared = SHARED.search(line)
                found.append((*kernel, (int(match.group(1)), *spills, int(shared.group(1)) if shared else 0)))
                kernel = None
    names = demangle(sorted({name for name, _, _ in found}))
    kernels = {}
    for name, architecture, values in found:
        kernels.setdefault((names[name], architecture), set()).add(values)
    return kernels


def cell(values, pick):
    return "; ".join(pick(value) for value in sorted(values)) if values else "none"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    arguments = parser.parse_args()
    before, after = read(arguments.before), read(arguments.after)
    architectures = [{architecture for _, architecture in log} for log in (before, after)]
    common = architectures[0] & architectures[1]
    every = sorted(kernel for kernel in set(before) | set(after) if kernel[1] in common)
    different = [kernel for kernel in every if before.get(kernel) != after.get(kernel)]
    columns = {
        "registers": lambda value: str(value[0]),
        "spill stores + loads": lambda value: f"{value[1]} + {value[2]}",
        "shared bytes": lambda value: str(value[3]),
    }
    if different:
        print("| kernel | for | " + " | ".join(f"{title}, before | after" for title in columns) + " |")
        print("|:--|:--|" + "--:|" * (2 * len(columns)))
    for kernel in different:
        cells = [cell(log.get(kernel), pick) for pick in columns.values() for log in (before, after)]
        name = kernel[0].replace("|", "\\|")
        print(f"| `{name}` | {kernel[1]} | " + " | ".join(cells) + " |")
    print(f"\n{len(every) - len(different)} kernels equal")
    for log, found in zip((arguments.before, arguments.after), architectures):
        for architecture in sorted(found - common):
            print(f"not compared: {architecture}, which {log} alone has")


if __name__ == "__main__":
    main()
