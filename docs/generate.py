#!/usr/bin/env python3
"""Makes the pages of the site that follow from the sources and from the results of benchmarks, in docs/generated:

manualpages/    a page for each manual page in the sources (/*@ @*/, /*E E*/, /*MC M*/), with an index
fragments/      tables of options, for the pages of the types to include; tables and lists of results. README.md, which includes
                nothing, has a copy of one of them, and a copy that is out of date is an error
results/        the result files of benchmarks/results
plots/          plots of results
pages.json      which name has which page, for conf.py"""
import glob
import json
import os
import re
import shutil

import manualpages
import papers
import results

here = os.path.dirname(os.path.abspath(__file__))
root = os.path.dirname(here)


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def write(name, text):
    path = f"{here}/generated/{name}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def adopt(text, folder_of_links):
    """A Markdown file of the repository as a page: its links to files that are no pages become names of files."""
    def link(match):
        words, target = match.groups()
        if re.match(r"https?:|#", target):
            return match.group(0)
        file, sharp, place = target.partition("#")
        path = os.path.normpath(os.path.join(folder_of_links, file))
        page = re.fullmatch(r"benchmarks/results/(\w+)\.(?:csv|md)", path)
        if page and page.group(1) in results.pages(root):
            return f"[{words}](/generated/results/{page.group(1)}.md)"
        if path in ADOPTED:
            return f"[{words}]({ADOPTED[path]})"
        if path.startswith("docs/") and path.endswith(".md"):
            return f"[{words}](/{path.removeprefix('docs/')}{sharp}{place})"
        return words if words.startswith("`") else f"`{path}`"
    return re.sub(r"\[([^\]]+)\]\(([^)]+)\)", link, text)


def gpu_options():
    """The option files for a GPU, each with what it is for"""
    parts = []
    for path in sorted(glob.glob(f"{root}/petsc-options/gpu_*.opts")):
        lines = read(path).splitlines()
        words = " ".join(line[2:] for line in lines if line.startswith("# ") and not line.startswith("# run: "))
        options = "\n".join(line for line in lines if not line.startswith("#"))
        parts.append(f"`petsc-options/{os.path.basename(path)}`: {words}\n\n```text\n{options}\n```\n")
    return "\n".join(parts)


ADOPTED = {"benchmarks/README.md": "/generated/benchmark.md", "CONTRIBUTING.md": "/generated/contributing.md",
           "CHANGELOG.md": "/generated/changelog.md"}


def main():
    shutil.rmtree(f"{here}/generated", ignore_errors=True)
    found = manualpages.collect(root)
    names = {}
    for page in found:
        names[page.name] = f"generated/manualpages/{page.name}"
        write(f"manualpages/{page.name}.md", manualpages.markdown(page))
    for page in found:
        for key in page.sets:
            names[key] = f"generated/manualpages/{page.name}"
    write("manualpages/index.md", manualpages.index(found))
    for page in found:
        if page.kind == "MC" and page.keys:
            write(f"fragments/options_{page.type_name}.md", manualpages.option_table(page))
    write("pages.json", json.dumps(names, indent=1))

    for path, page in ADOPTED.items():
        write(os.path.relpath(page, "/generated"), adopt(read(f"{root}/{path}"), os.path.dirname(path)))
    for name in results.pages(root):
        text = results.page(root, name)
        write(f"results/{name}.md", adopt(text, "benchmarks/results"))
    write("results/index.md", results.index(root))
    write("fragments/gpu_options.md", gpu_options())
    for name, text in (results.fragments(root) | papers.fragments(root)).items():
        write(f"fragments/{name}.md", text)
    if results.headline_table(root) not in read(f"{root}/README.md"):
        raise SystemExit("README.md: its table of measured times is not that of docs/tables/one_h100.tsv, which is\n\n"
                         + results.headline_table(root))
    os.makedirs(f"{here}/generated/plots", exist_ok=True)
    results.plots(root, f"{here}/generated/plots")


if __name__ == "__main__":
    main()
