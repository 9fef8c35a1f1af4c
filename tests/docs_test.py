#!/usr/bin/env python3
"""Options are a contract: key = setter = getter = manual page = README row = option file, and their defaults agree.
The layers keep their rules. Reads the sources, and asks a program for the defaults that are in use:

    docs_test.py --build BUILD_FOLDER --source SOURCE_FOLDER"""
import argparse
import glob
import os
import re
import subprocess
import sys

problems = []


def check(holds, problem):
    if not holds:
        problems.append(problem)


def read(path):
    with open(path) as f:
        return f.read()


def setter_of(key):
    """-pc_afsai_max_steps -> PCAFSAISetMaxSteps"""
    _, pc, words = key.lstrip("-").split("_", 2)
    return f"PC{pc.upper()}Set" + "".join(word.capitalize() for word in words.split("_"))


def getter_of(key):
    return setter_of(key).replace("Set", "Get", 1)


def same_value(x, y):
    try:
        return float(x) == float(y)
    except ValueError:
        return x.lower() == y.lower()


def manual_page(source, name):
    page = re.search(rf"/\*@C?\n  {name} - (.*?)@\*/", source, re.S)
    return page.group(1) if page else ""


def defaults_in_use(build, pc):
    """Key -> value, as -help prints them, and key -> setter that -help names."""
    command = [f"{build}/tutorials/ex1", "-dll_append", f"{build}/lib/libfinepc.so", "-pc_type", pc, "-help", "-n", "3"]
    text = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=120).stdout
    values, setters = {}, {}
    for key, value, setter in re.findall(rf"^\s*(-pc_{pc}_\w+): <?(?:now )?([^ :>]*).*\((\w+)\)\s*$", text, re.M):
        values[key], setters[key] = value, setter
    return values, setters


def check_pc(root, build, pc):
    face = read(f"{root}/src/pc/{pc}/{pc}.cxx")
    header = read(f"{root}/include/finepc.h")
    readme = read(f"{root}/README.md") if os.path.exists(f"{root}/README.md") else ""
    check(readme, "README.md is missing")
    option_files = {path: read(path) for path in glob.glob(f"{root}/petsc-options/*")}
    used = {key: path for path, text in option_files.items() for key in re.findall(r"^\s*(-pc_%s_\w+)" % pc, text, re.M)}
    keys = re.findall(r'PetscOptions\w+\("(-pc_%s_\w+)"' % pc, face)
    check(keys, f"{pc}: no keys")
    check(len(keys) == len(set(keys)), f"{pc}: a key twice")
    values, help_setters = defaults_in_use(build, pc)
    page = re.search(r"/\*MC\n(.*?)M\*/", face, re.S)
    page = page.group(1) if page else ""
    check(page, f"{pc}: no /*MC page")
    page_defaults = dict(re.findall(r"^[+.-]\s+(-pc_%s_\w+) <(.*?)>" % pc, page, re.M))

    def check_pair(what, setter, getter):
        for function in (setter, getter):
            check(re.search(rf"PETSC_EXTERN PetscErrorCode {function}\(PC, ", header), f"{what}: {function} is not in finepc.h")
            check(re.search(rf"^PetscErrorCode {function}\(PC pc, ", face, re.M), f"{what}: {function} is not defined")
            check(f'"{function}_C"' in face, f"{what}: {function}_C is not composed")
            check(manual_page(face, function), f"{what}: {function} has no manual page")
        check(f"`{getter}()`" in manual_page(face, setter), f"{what}: the manual page of {setter} does not point to {getter}")
        check(f"`{setter}()`" in manual_page(face, getter), f"{what}: the manual page of {getter} does not point to {setter}")
        check(f"`{setter}()`" in page, f"{what}: the page of the type does not point to {setter}")

    for key in keys:
        setter, getter = setter_of(key), getter_of(key)
        check(re.search(rf'"{key}", "[^"]+", "{setter}"', face), f"{key}: its option does not name {setter}")
        check_pair(key, setter, getter)
        manual = manual_page(face, setter)
        check(re.search(rf"Options Database Key:\n. {key} <", manual), f"{key}: the manual page of {setter} does not give the key")
        check(help_setters.get(key) == setter, f"{key}: -help names {help_setters.get(key)}")

        default = values.get(key)
        check(default is not None, f"{key}: -help does not show it")
        check(key in page_defaults, f"{key}: not on the page of the type")
        if default is not None and key in page_defaults:
            check(same_value(page_defaults[key], default), f"{key}: its default is {default}, the page of the type says {page_defaults[key]}")
        stated = re.search(r"([\w.-]+) \(default|`(?:FINEPC|PC_%s|PETSC)_(?:\w+_)?(\w+)` \(default" % pc.upper(), manual)
        if stated and default is not None:
            word = (stated.group(2) or stated.group(1)).strip("`")
            check(same_value(word, default), f"{key}: its default is {default}, the manual page of {setter} says {word}")
        row = re.search(rf"^\|\s*`{key}[^|]*\|.*$", readme, re.M)
        check(row, f"{key}: no row in README.md")
        if row and default is not None:
            cells = [cell.strip().strip("`") for cell in row.group(0).strip("|").split("|")]
            check(any(same_value(cell, default) for cell in cells[1:]), f"{key}: its default is {default}, which is in no cell of its row in README.md")
        check(key in used, f"{key}: in no file of petsc-options/")

    # an object cannot be typed on a command line: its setter has no key, but all the rest
    objects = re.findall(r"PETSC_EXTERN PetscErrorCode (PC%sSet\w+)\(PC, Mat\);" % pc.upper(), header)
    for setter in objects:
        check_pair(setter, setter, setter.replace("Set", "Get", 1))
        check(f"`{setter}()`" in readme, f"{setter} is not in README.md")
    setters = [setter for setter in re.findall(r"PETSC_EXTERN PetscErrorCode (PC%sSet\w+)\(" % pc.upper(), header) if setter not in objects]
    check(sorted(setters) == sorted(map(setter_of, keys)), f"{pc}: setters in finepc.h and keys differ: {sorted(set(setters) ^ set(map(setter_of, keys)))}")
    for where, found in (("README.md", re.findall(r"-pc_%s_\w+" % pc, readme)), ("petsc-options/", list(used)), ("the page of the type", list(page_defaults)), ("-help", list(values))):
        for key in sorted(set(found) - set(keys)):
            check(False, f"{key}: in {where}, but no such option")
    for function in re.findall(r"PETSC_EXTERN PetscErrorCode (PC%s\w+)\(" % pc.upper(), header):
        check(manual_page(face, function), f"{function} has no manual page")


def check_layers(root):
    def files(*patterns):
        return sorted(path for pattern in patterns for path in glob.glob(f"{root}/{pattern}", recursive=True) if os.path.isfile(path))

    twins, sources = files("cuda/*", "src/**/*_host.cxx"), files("src/**/*", "include/**/*", "tutorials/*.cxx", "benchmarks/*.cxx", "tests/*.cxx", "tests/*.h")
    check(len(twins) > 4 and len(sources) > 10, "the layers' files are not where they were")
    for path in twins:
        check("pcimpl.h" not in read(path), f"{path} includes pcimpl.h: twins know arrays and parameters only")
    for path in sources:
        text = read(path)
        check("<<<" not in text, f"{path} launches a kernel: kernels live in cuda/")
        check("cuda_runtime" not in text, f"{path} includes cuda_runtime: that belongs in cuda/")
    for path in files("src/pc/*/*.h"):
        check(read(path).count("\n") <= 60, f"{path} is longer than 60 lines: it is the narrow header between face and kernels")
    for path in files("src/**/*_host.cxx"):
        twin = f"{root}/cuda/{os.path.basename(path).replace('_host.cxx', '.cu')}"
        check(os.path.exists(twin), f"{path} has no twin {twin}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--source", required=True)
    options = parser.parse_args()
    pcs = sorted(os.path.basename(os.path.dirname(path)) for path in glob.glob(f"{options.source}/src/pc/*/*.h"))
    check(pcs, "no PC found")
    for pc in pcs:
        check_pc(options.source, options.build, pc)
    check_layers(options.source)
    for problem in problems:
        print("FAILED:", problem.replace(options.source + "/", ""))
    print(f"docs_test: {', '.join(pcs)}: {len(problems)} problems")
    sys.exit(len(problems) > 0)


if __name__ == "__main__":
    main()
