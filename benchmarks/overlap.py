#!/usr/bin/env python3
"""A table of what hops and layers of a distributed factor bring and cost, from runs of finepc_bench with sets/overlap.txt.

  finepc_bench -sets sets/overlap.txt -only afsai20-k0,sfsai2-k0,afsai7-k0 -systems S -json one.json
  mpiexec -n 4 finepc_bench -sets sets/overlap.txt -systems S -json four.json
  overlap.py one.json four.json -o table.md

The first file is that of one rank. Set-up times are those of the fastest warm run; rows and bytes are what the view says.
"""

import argparse
import json
import re


def from_view(view, pattern):
    for line in view:
        found = re.search(pattern, line)
        if found:
            return found.group(1)
    return "0"


def head(run):
    ranks = f"{run['ranks']} rank" + ("s" if run["ranks"] > 1 else "")
    driver = f", driver {run['driver']}" if run["driver"] else ""
    made = f"PETSc {run['petsc']}, commit {run['commit']}, {run['date']}"
    return f"backend {run['backend']}, {run['device']}{driver}, {ranks}, {made}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("one")
    parser.add_argument("several", nargs="+")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--note", default="", help="a sentence about the runs")
    options = parser.parse_args()

    with open(options.one, encoding="utf-8") as file:
        one = json.load(file)
    alone = {(system["name"], result["label"]): result for system in one["systems"] for result in system["results"]}
    lines = ["Hops and layers of a factor that reaches other ranks, made by overlap.py of runs of finepc_bench: k is the overlap,",
             "h the halo layers; \"ratio\" is iterations over those of one rank with the same options; rows and bytes are gathered",
             "ones, and the largest rank's. " + options.note, "", "One rank: " + head(one), ""]
    for path in options.several:
        with open(path, encoding="utf-8") as file:
            run = json.load(file)
        lines += ["Several ranks: " + head(run), "",
                  "| system | ranks | method | k | h | its | one rank | ratio | set-up ms | of k = 0 | gathered rows "
                  "| share of own | bytes | rows that may be cut |",
                  "|:--|--:|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
        for system in run["systems"]:
            block_local = {}
            for result in system["results"]:
                method, hops, *layers = result["label"].split("-")
                reference = alone.get((system["name"], method + "-k0"))
                if result["status"] != "ok" or not reference or reference["status"] != "ok":
                    lines.append(f"| {system['name']} | {run['ranks']} | {method} | {hops[1:]} | | {result['status']} |" + " |" * 8)
                    continue
                if hops == "k0":
                    block_local[method] = result["setup_s"]
                rows = from_view(result["view"], r"gathered rows of other ranks: \d+ in all, from \d+ to (\d+) a rank")
                size = from_view(result["view"], r"gathered rows of other ranks: .* in at most (\d+) bytes")
                cut = from_view(result["view"], r"rows of G that the limit of couplings may have cut: (\d+)")
                share = int(rows) / (system["rows"] / run["ranks"])
                lines.append(f"| {system['name']} | {run['ranks']} | {method} | {hops[1:]} | {layers[0][1:] if layers else ''} | "
                             f"{result['iterations']} | {reference['iterations']} | "
                             f"{result['iterations'] / reference['iterations']:.3f} | {1e3 * result['setup_s']:.1f} | "
                             f"{result['setup_s'] / block_local[method]:.2f} | {rows} | {share:.2f} | {size} | {cut} |")
        lines.append("")
    with open(options.output, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))


main()
