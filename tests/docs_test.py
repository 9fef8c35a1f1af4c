#!/usr/bin/env python3
"""Options are a contract: key = manual page of the type = option file, and their defaults agree; each type has a row in
README.md and a page of its own, and no page names an option that does not exist. The layers keep their rules. Reads the sources,
and asks a program for the defaults that are in use:

    docs_test.py --build BUILD_FOLDER --source SOURCE_FOLDER"""
import argparse
import glob
import importlib.machinery
import importlib.util
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


def registered(root):
    """(kind, name) of every type: (PC, afsai) for PCRegister(PCAFSAI, ...) and #define PCAFSAI "afsai"."""
    header = read(f"{root}/include/finepc.h")
    for kind, constant in re.findall(r"\b(PC|KSP)Register\((\w+),", read(f"{root}/src/register.cxx")):
        name = re.search(rf'^#define {constant}\s+"(\w+)"', header, re.M)
        check(name, f"{constant} is not in finepc.h")
        if name:
            yield kind, name.group(1)


def same_value(x, y):
    try:
        return float(x) == float(y)
    except ValueError:
        return x.lower() == y.lower()


def manual_page(source, name):
    page = re.search(rf"/\*@C?\n  {name} - (.*?)@\*/", source, re.S)
    return page.group(1) if page else ""


def defaults_in_use(build, kind, name, keys):
    """Key -> value, as -help prints them, and key -> setter that -help names: of all keys of the type, and of the given others."""
    program, library = f"{build}/tutorials/ex1", f"{build}/lib/libfinepc.so"
    command = [program, "-dll_append", library, f"-{kind.lower()}_type", name, "-help", "-n", "3"]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=120)
    text = run.stdout
    values, setters = {}, {}
    for key, value, setter in re.findall(r"^\s*(-\w+):? <?(?:now )?([^ :>]*).*\((\w+)\)\s*$", text, re.M):
        if key in keys or key.startswith(f"-{kind.lower()}_{name}_"):
            values[key], setters[key] = value, setter
    return values, setters


def read_if_there(path):
    return read(path) if os.path.exists(path) else ""


def pages_for_users(root):
    """README.md and the pages of the site, without those that are generated."""
    folders = ("", "start/", "types/", "recipes/", "performance/", "papers/", "shared/")
    return [f"{root}/README.md"] + files(root, *(f"docs/{folder}*.md" for folder in folders))


def check_readme(root, option, name):
    readme = read_if_there(f"{root}/README.md")
    check(re.search(rf"^\| `{option}` \|", readme, re.M), f"{name}: no row `{option}` in the table of types in README.md")
    check(f"(docs/types/{name}.md)" in readme, f"{name}: README.md does not lead to docs/types/{name}.md")
    check(f"(types/{name}.md)" in read_if_there(f"{root}/docs/index.md"), f"{name}: docs/index.md does not lead to its page")


def check_pages(root):
    """What docs/manualpages.py makes pages of: every public function has one, and a name of ours that a page refers to exists."""
    sys.path.insert(0, f"{root}/docs")
    import manualpages
    pages = manualpages.collect(root)
    names = {page.name for page in pages}
    header = read(f"{root}/include/finepc.h")
    public = re.findall(r"PETSC_EXTERN PetscErrorCode (\w+)\(", header)
    check(len(public) > 50, "the prototypes of finepc.h are not where they were")
    for function in public:
        check(function in names, f"{function} has no manual page")
    owners = "|".join(sorted({re.match(r"(?:PC|KSP)[A-Z]+(?:Fused)?(?=Set|Get)", name).group(0)
                              for name in public if re.match(r"(?:PC|KSP)[A-Z]+(?:Fused)?(?:Set|Get)", name)}))
    texts = {page.source: "\n".join(page.body) for page in pages}
    texts.update({path.replace(f"{root}/", ""): read(path) for path in pages_for_users(root)})
    for where, text in texts.items():
        for name in re.findall(rf"`((?:{owners}|FinePC)\w+)\(\)`", text):
            check(name in names, f"{where}: there is no {name}()")
    words = len(read_if_there(f"{root}/README.md").split())
    check(0 < words <= 1200, f"README.md has {words} words, at most 1200; the rest belongs to docs/")


def check_moose(root):
    """The input block for MOOSE has the options of the shell lines above it."""
    page = read(f"{root}/docs/recipes/reservoirs.md")
    of_shell = re.search(r"```sh\n(.*?)```", page, re.S).group(1).split()
    names, values, flags = (re.search(rf"^  petsc_options{what} = '([^']*)'$", page, re.M).group(1).split()
                            for what in ("_iname", "_value", ""))
    of_moose = flags + [word for pair in zip(names, values, strict=True) for word in pair]
    check(sorted(of_shell) == sorted(of_moose), "docs/recipes/reservoirs.md: MOOSE's options are not those of the shell lines")


def check_views(root, build):
    """The lines of a view that a page quotes are printed by the program that the page names, but for the numbers."""
    def without_numbers(line):
        return " ".join(re.sub(r"-?\d[\d.e+-]*", "#", line).split())
    count = 0
    for page in files(root, "docs/types/*.md"):
        views = re.findall(r"^% printed by(?: (\d+) ranks of)?: ([^\n]*)\n```text\n(.*?)^```", read(page), re.M | re.S)
        for ranks, command, block in views:
            program, *options = command.split()
            command_line = ["mpiexec", "-n", ranks] if ranks else []
            command_line += [f"{build}/tutorials/{program}", "-dll_append", f"{build}/lib/libfinepc.so", "-ksp_view", *options]
            run = subprocess.run(command_line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                 timeout=120)
            printed = {without_numbers(line) for line in run.stdout.splitlines()}
            count += 1
            for line in block.splitlines():
                check(without_numbers(line) in printed, f"{page}: {command} does not print the line: {line}")
    check(count >= 5, "the pages of the types do not say which program prints their views")


def table_of_options(face):
    """(key, setter) of each line of the type's table, Option<PC> kOptions[] = {{"-key", "text", "Setter", ...}, ...};
    without the keys that are for earlier releases of PETSc alone."""
    table = re.search(r"\bOption<(?:PC|KSP)> kOptions\[\] = \{\n(.*?)\n\};", face, re.S)
    lines = re.sub(r"^  /\* before PETSc.*?\},$", "", table.group(1), flags=re.M | re.S) if table else ""
    return re.findall(r'\{"(-\w+)",\s*"[^"]+",\s*"(\w+)",', lines)


def check_type(root, build, kind, name):
    """kind: PC or KSP. What scripts/options writes agrees with the table of options by itself."""
    faces = files(root, f"src/{kind.lower()}/**/{name}.cxx", f"src/{kind.lower()}/**/{name}_options.cxx")
    check(faces, f"{name}: no face {name}.cxx under src/{kind.lower()}/")
    face, ours, header = "".join(map(read, faces)), f"-{kind.lower()}_{name}_", read(f"{root}/include/finepc.h")
    of_type = read_if_there(f"{root}/docs/types/{name}.md")
    check(of_type, f"docs/types/{name}.md is missing")
    for text in ("## The idea", "## Options", f"generated/fragments/options_{name}.md", "## What to tune first", "imits"):
        check(text in of_type, f"docs/types/{name}.md: nothing like {text}")
    used = {key for path in files(root, "petsc-options/*") for key in re.findall(r"^\s*(-\w+)", read(path), re.M)}
    every = table_of_options(face)
    keys = [key for key, _ in every if key.startswith(ours)]
    of_petsc = {key: setter for key, setter in every if not key.startswith(ours)}
    check(keys, f"{name}: no keys")
    check(len(every) == len({key for key, _ in every}), f"{name}: a key twice")
    beside = re.search(r'PetscOptionsHeadBegin|PetscOptions[A-Z]\w+\("-', face)
    check(not beside, f"{name}: an option beside the table")
    values, help_setters = defaults_in_use(build, kind, name, of_petsc)
    page = re.search(r"/\*MC\n(.*?)M\*/", face, re.S)
    page = page.group(1) if page else ""
    check(page, f"{name}: no /*MC page")
    page_defaults = dict(re.findall(r"^[+.-]\s+(%s\w+) <(.*?)>" % ours, page, re.M))
    check_readme(root, f"-{kind.lower()}_type {name}", name)

    for key in keys:
        check(key in page_defaults, f"{key}: not on the page of the type")
        check(key in used, f"{key}: in no file of petsc-options/")
        default, of_page = values.get(key), page_defaults.get(key, "")
        check(default is not None, f"{key}: -help does not show it")
        check(same_value(of_page, default or ""), f"{key}: its default is {default}, the page of the type says {of_page}")

    # keys of PETSc that the type takes too: their names, setters and pages are PETSc's, and the default may depend on the ranks
    for key, setter in of_petsc.items():
        check(setter not in header, f"{key}: {setter} is in finepc.h, but the key is not one of {name}")
        check(help_setters.get(key) == setter, f"{key}: -help names {help_setters.get(key)}")
        check(re.search(rf"^[+.-]\s+{key}\b.*`{setter}\(\)`", page, re.M), f"{key}: not on the page of the type with `{setter}()`")
        check(f"`{key}`" in of_type, f"{key}: not in docs/types/{name}.md")
        check(key in used, f"{key}: in no file of petsc-options/")

    # an object cannot be typed on a command line: its setter has no key, but all the rest
    for setter in re.findall(rf"PETSC_EXTERN PetscErrorCode ((?i:{kind}{name})Set\w+)\({kind}, Mat\);", header):
        for function in (setter, setter.replace("Set", "Get", 1)):
            check(f'"{function}_C"' in face, f"{function}_C is not composed")
        check(f"`{setter}()`" in page, f"{setter} is not on the page of the type")
        check(f"`{setter}()`" in of_type, f"{setter} is not in docs/types/{name}.md")
    written = {path.replace(f"{root}/", ""): re.findall(rf"{ours}\w+(?!\w*\*)", read(path)) for path in pages_for_users(root)}
    places = {**written, "petsc-options/": used}
    places.update({"the page of the type": page_defaults, "-help": values})
    for where, found in places.items():
        for key in sorted(set(found) - set(keys) - {f"{ours}backend"}):
            check(not key.startswith(ours), f"{key}: in {where}, but no such option")
    # what all types have, but for rrbcg, which works where its preconditioner does
    check((f"{ours}backend" in page_defaults) == (f"{ours}backend" in values) == (name != "rrbcg"), f"{ours}backend: page or -help")


def check_matrix_types(root):
    """Matrix types have no keys of their own: constant = manual page = README row = page of the type = option file."""
    header = read(f"{root}/include/finepc.h")
    constants = re.findall(r"\bMatRegister\((\w+),", read(f"{root}/src/register.cxx"))
    roots = re.findall(r"\bMatRegisterRootName\((\w+), (\w+), (\w+)\)", read(f"{root}/src/register.cxx"))
    of_roots = [name for names in roots for name in names[1:]]
    check(sorted(constants) == sorted(of_roots), "src/register.cxx: matrix types and root names differ")
    pages = "".join(read(path) for path in glob.glob(f"{root}/src/mat/*.cxx"))
    options = "".join(read(path) for path in glob.glob(f"{root}/petsc-options/*"))
    names = []
    for constant in [name for group in roots for name in group]:
        name = re.search(rf'^#define {constant}\s+"(\w+)"', header, re.M)
        check(name, f"{constant} is not in finepc.h")
        if name:
            names.append(name.group(1))
            check(re.search(rf"/\*MC\n  {constant} - \"{names[-1]}\" - ", pages), f"{constant}: no /*MC page")
            check(f"-mat_type {names[-1]} " in pages, f"{constant}: its page does not give -mat_type {names[-1]}")
    for constant, _, _ in roots:
        name = re.search(rf'^#define {constant}\s+"(\w+)"', header, re.M).group(1)
        check_readme(root, f"-mat_type {name}", name)
        check(os.path.exists(f"{root}/docs/types/{name}.md"), f"docs/types/{name}.md is missing")
        check(re.search(rf"^-mat_type {name}$", options, re.M), f"-mat_type {name}: in no file of petsc-options/")
    return names


def check_solver_packages(root):
    """Packages for MatGetFactor() have no setters: constant = manual page = keys = rows of the lists = page of the package."""
    header, names = read(f"{root}/include/finepc.h"), []
    for path in files(root, "src/mat/*.cxx"):
        face = read(path)
        for constant in sorted(set(re.findall(r"\bMatSolverTypeRegister\((\w+),", face))):
            names.append(re.search(rf'# *define {constant}\s+"(\w+)"', header).group(1))
            page = re.search(rf'/\*MC\n  {constant} - "{names[-1]}" - (.*?)M\*/', face, re.S)
            check(page, f"{constant}: no /*MC page")
            of_type = read_if_there(f"{root}/docs/types/{names[-1]}.md")
            check_readme(root, f"-pc_factor_mat_solver_type {names[-1]}", names[-1])
            check(f"generated/fragments/options_{names[-1]}.md" in of_type, f"docs/types/{names[-1]}.md does not show the options")
            keys = set(re.findall(r'PetscOptions\w+\(\s*"(-\w+)"', face))
            of_page = set(re.findall(r"^[+.-] (-mat_\w+) <", page.group(1) if page else "", re.M))
            check(keys and keys == of_page, f"{names[-1]}: the options are {sorted(keys)}, the page has {sorted(of_page)}")
            for text in map(read, pages_for_users(root)):
                for key in set(re.findall(rf"-mat_{names[-1]}_\w+", text)) - keys:
                    check(False, f"{key}: on a page, but no such option")
    return names


def files(root, *patterns):
    found = [path for pattern in patterns for path in glob.glob(f"{root}/{pattern}", recursive=True)]
    return sorted(path for path in found if os.path.isfile(path))


def check_layers(root):
    example = "docs/examples/l1jacobi/*"
    twins = files(root, "cuda/**/*", "src/**/*_host.cxx", f"{example}.cu", f"{example}_host.cxx")
    sources = files(root, "src/**/*", "include/**/*", "tutorials/*.cxx", "benchmarks/*.cxx", "tests/*.cxx", "tests/*.h",
                    f"{example}.cxx", f"{example}.h")
    check(len(twins) > 4 and len(sources) > 10, "the layers' files are not where they were")
    for path in twins:
        for forbidden in ("pcimpl.h", "kspimpl.h", "matimpl.h"):
            check(forbidden not in read(path), f"{path} includes {forbidden}: twins know arrays and parameters only")
        if not path.endswith("/cuda/device/device.cuh"):
            check("<petscdevice" not in read(path), f"{path} includes a header of PETSc's devices: that belongs in cuda/device")
    for path in sources:
        text = read(path)
        check("<<<" not in text, f"{path} launches a kernel: kernels live in cuda/")
        check("cuda_runtime" not in text, f"{path} includes cuda_runtime: that belongs in cuda/")
    # The twin of a host twin: X.cu, the device functions X.cuh, or X_phase.cu for each phase, in the folder of the same name.
    for path in files(root, "src/**/*_host.cxx"):
        stem = path.replace(f"{root}/src/", f"{root}/cuda/").replace("_host.cxx", "")
        check(glob.glob(f"{stem}.cu") + glob.glob(f"{stem}.cuh") + glob.glob(f"{stem}_*.cu"), f"{path} has no twin {stem}.cu")


def check_entries(root):
    """Whatever PETSc calls is handed to it as Entry<Function> of src/entry.h, so that no exception gets into its frames:
    operations, functions that create types, and composed methods. The names of functions begin with a capital."""
    given = re.compile(r"ops->\w+\s*=([^;=]*);|\b(?:PC|KSP|Mat)Register\(\w+,([^;]*)\);|\bComposeFunction\(([^;]*)\);"
                       r"|\bPetscObjectComposeFunction\(([^;]*)\);|\bComposeMethods\((?!Object)([^;]*)\);"
                       r"|\breplace\(&_MatOps::\w+,([^;]*)\);|\bComposeConversion\((?!Mat)([^;]*)\);")
    creators = re.findall(r"PETSC_EXTERN PetscErrorCode ((?:PC|KSP|Mat)Create_\w+)\(", read(f"{root}/include/finepc.h"))
    sources = "".join(read(path) for path in files(root, "src/**/*.cxx"))
    registered_creators = re.findall(r"\b(?:PC|KSP|Mat)Register\(\w+, (\w+)\)", read(f"{root}/src/register.cxx"))
    check(sorted(creators) == sorted(registered_creators), "the functions that create types in finepc.h and in register.cxx differ")
    for function in creators: # a program registers them, too, under names of its own
        body = re.search(rf"^PetscErrorCode {function}\(.*?^}}", sources, re.M | re.S)
        body = body.group(0) if body else ""
        registers = "FinePCInitializePackage()" in body and "Entry<Create" in body
        check(registers, f"{function} does not register finepc, or has no Entry<>")
        check(manual_page(sources, function), f"{function} has no manual page")
    entries = 0
    for path in files(root, "src/**/*.cxx", "src/**/*.h"):
        for match in given.finditer(read(path)):
            what = next(group for group in match.groups() if group is not None)
            entries += what.count("Entry<")
            what = re.sub(r"Entry<[\w:]+(<[\w, ]+>)?>|\b[A-Z]\w*::(?=k[A-Z])|\([^()]*\)|\"[^\"]*\"|\bk[A-Z]\w+", "", what)
            known = ["KSPBuildSolutionDefault", *creators] # the first one is PETSc's
            left = [word for word in re.findall(r"\b[A-Z]\w+", what) if word not in known]
            check(not left, f"{path}: {left} are handed to PETSc without Entry<> of src/entry.h")
    check(entries > 80, f"{entries} functions are handed to PETSc: src/ is not as it was")


def check_stored_runs(root):
    """Each kept run says how it was made; those of gmresfused and of bisai can be run again: their options are lines of a set."""
    lines = set()
    for path in glob.glob(f"{root}/benchmarks/sets/*.txt"):
        for line in read(path).splitlines():
            if line and not line.startswith("#"):
                label, _, options = line.partition(":")
                lines.add((label.strip(), options.strip()))
    sys.path.append(f"{root}/benchmarks")
    import keep  # pylint: disable=import-outside-toplevel
    paths = glob.glob(f"{root}/benchmarks/results/*.csv")
    check(paths, "benchmarks/results: nothing is there")
    for path in paths:
        name, report = os.path.relpath(path, root), keep.read(path)
        check(keep.HEAD.fullmatch(report.head) and report.commands, f"{name}: its first lines do not say how it was made")
        for command in report.commands:
            for file in re.findall(r"sets/\w+\.txt", command):
                check(os.path.exists(f"{root}/benchmarks/{file}"), f"{name}: there is no {file}")
        if re.search("gmres|bisai", name):
            for row in report.rows:
                check((row["set"], row["options"]) in lines, f"{name}: no set has {row['set']}: {row['options']}")


# Tables and figures with results or matrices, beside those that only describe methods; the plots of the talk by their words
OF_PAPERS = {
    "afsai": ["table 5.1"] + [f"figure 5.{k}" for k in range(1, 11)],
    "bisai": [f"table {k}" for k in range(1, 5)] + [f"figure {k}" for k in (4, 5, 6, 7, 8, 9, 11, 12)],
    "cmatch": ["iterations", "operator complexity", "solve time", "time per iteration", "Chebyshev of degree 4: iterations",
               "Chebyshev of degree 4: time", "Piz Daint: time", "Piz Daint: energy"],
    "rrb": [f"table 5.{k}" for k in range(1, 4)] + [f"figure 5.{k}" for k in range(1, 7)],
    "sfsai": [f"table {k}" for k in range(1, 8)] + [f"figure {k}" for k in (3, 4, 5)],
}


def shown(text):
    """The tables and figures that a text names: "figures 5.1 to 5.3 and 5.9" are four."""
    found = set()
    for kind, numbers in re.findall(r"\b(table|figure)s? (\d[\d., toand]*)", text):
        for first, last in re.findall(r"(\d+(?:\.\d+)?)(?: to (\d+(?:\.\d+)?))?", numbers):
            chapter, _, begin = first.rpartition(".")
            for k in range(int(begin), int((last or first).rpartition(".")[2]) + 1):
                found.add(f"{kind} {chapter}{'.' if chapter else ''}{k}")
    return found


def plots(text):
    """The plots of the talk that a text names: those of a smoother or machine stand on one line with its name."""
    named = OF_PAPERS["cmatch"]
    return {plot for plot in named if any(all(word in line for word in plot.split(": ")) for line in text.splitlines())}


def check_papers(root):
    """Each table and figure of the papers stands in papers.tsv, with a run that benchmarks/papers has, or with a reason."""
    sys.path.append(f"{root}/benchmarks")
    import keep  # pylint: disable=import-outside-toplevel
    loader = importlib.machinery.SourceFileLoader("papers_script", f"{root}/benchmarks/papers")
    script = importlib.util.module_from_spec(importlib.util.spec_from_loader("papers_script", loader))
    loader.exec_module(script)
    steps = {f"paper_{step.name}": step for step in script.EXPERIMENTS}
    for step in steps.values():
        sets = read(f"{root}/benchmarks/sets/paper_{step.name.partition('_')[0]}.txt") + read(f"{root}/benchmarks/sets/bsrsv2.txt")
        for label in step.only.split(","):
            check(re.search(rf"^{label}:", sets, re.M), f"benchmarks/papers: {step.name}: no set has {label}")
    index, table = read_if_there(f"{root}/docs/papers/index.md"), read(f"{root}/docs/tables/papers.tsv")
    for name, step in steps.items():
        if step.gpus > 2:
            check(f"`{step.name}`" in index, f"docs/papers/index.md does not name {step.name}")
        else:
            check(re.search(rf"\b{name}\b", table), f"docs/tables/papers.tsv: nothing of {name}")
    lines = [line.split("\t") for line in table.splitlines() if not line.startswith("#")][1:]
    for paper, expected in OF_PAPERS.items():
        page, rows = read_if_there(f"{root}/docs/papers/{paper}.md"), [line for line in lines if line[0] == paper]
        check(f"generated/fragments/paper_{paper}.md" in page, f"docs/papers/{paper}.md does not show its tables")
        check(f"petsc-options/paper_{paper}.opts" in page, f"docs/papers/{paper}.md does not name its option file")
        check(os.path.exists(f"{root}/petsc-options/paper_{paper}.opts"), f"petsc-options/paper_{paper}.opts is missing")
        texts = "".join(f"{line[1]} {line[2]}\n" for line in rows)
        for what in sorted(set(expected) - shown(page + texts) - plots(texts)):
            check(False, f"docs/papers/{paper}.md: nothing about {what}")
    for paper, show, row, column, theirs, ours in lines:
        where = f"docs/tables/papers.tsv: {paper}, {show}, {row}, {column}"
        check(theirs or ours.startswith(("not: ", "runs ")), f"{where}: no number of the paper")
        told = re.match(r"not: \S|runs \w|model \d+ ranks_model$|=|\w+ \S+ \S+ \S+", ours)
        check(told, f"{where}: neither a number nor a reason")
        for part in ours.split(" / ") if told and not ours.startswith(("not: ", "runs ", "model ", "=")) else []:
            name, system, label = part.split()[:3]
            if not name.startswith("paper_"):
                rows = keep.read(f"{root}/benchmarks/results/{name}.csv").rows
                check((system, label) in [(row["system"], row["set"]) for row in rows], f"{where}: no row of {name}.csv")
                continue
            known = name in steps and label in steps[name].only.split(",")
            check(known and system in re.sub(r"file:\S*?(\w+)\.petsc(\.[gx]z)?", r"\1", steps[name].systems).split(","),
                  f"{where}: benchmarks/papers does not run {part}")
        if ours.startswith("runs "):
            for name in ours.split()[1:]:
                there = name in steps or os.path.exists(f"{root}/benchmarks/results/{name}.csv")
                check(there, f"{where}: benchmarks/papers does not make {name}")
        if ours.startswith("="):
            numbers, name = ours[1:].split()
            for number in re.split(r"/1\.0737$|[+/()]|100\*|0\.019\*", numbers):  # percent, ms of 19 iterations, GiB
                if not number:
                    continue
                printed = rf"(?<![\d.]){re.escape(number)}0*(?![\d.])"
                there = re.search(printed, read(f"{root}/benchmarks/results/{name}.md"))
                check(there, f"{where}: {number} is not in benchmarks/results/{name}.md")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--source", required=True)
    options = parser.parse_args()
    types = list(registered(options.source))
    check({kind for kind, _ in types} == {"PC", "KSP"}, "src/register.cxx does not register PC and KSP types")
    for kind, name in types:
        check_type(options.source, options.build, kind, name)
    matrices = check_matrix_types(options.source)
    check(matrices, "src/register.cxx does not register matrix types")
    packages = check_solver_packages(options.source)
    check(packages, "src/mat/ registers no solver package")
    check_pages(options.source)
    check_moose(options.source)
    check_views(options.source, options.build)
    check_layers(options.source)
    check_entries(options.source)
    check_stored_runs(options.source)
    check_papers(options.source)
    for problem in problems:
        print("FAILED:", problem.replace(options.source + "/", ""))
    print(f"docs_test: {', '.join([name for _, name in types] + matrices + packages)}: {len(problems)} problems")
    sys.exit(len(problems) > 0)


if __name__ == "__main__":
    main()
