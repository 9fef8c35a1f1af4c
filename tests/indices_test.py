#!/usr/bin/env python3
"""The library and its tests compile with a PETSc whose PetscInt has 64 bits, too: each host source is checked by the compiler of
the build, with PETSC_USE_64BIT_INDICES defined, which is how PETSc's headers know. Kernels count in LocalInt, so that they do not
change with PETSc; the compiler of CUDA would take minutes to say so, and their sources are searched for PetscInt instead.

    indices_test.py --build BUILD_FOLDER --source SOURCE_FOLDER"""
import argparse
import concurrent.futures
import glob
import json
import os
import re
import shlex
import subprocess
import sys

# Functions of kernels that take arrays of PETSc's numbers.
BORDER = ("CopyLocalInts", "LocalIntCopy_CUDA")


def check_source(command):
    """What the compiler says about one source, or nothing."""
    words = shlex.split(command["command"])
    words = words[next(k for k, word in enumerate(words) if not word.endswith("ccache")):]
    for option in ("-o", "-MF", "-MT", "-MQ"):
        while option in words:
            del words[words.index(option):words.index(option) + 2]
    words = [word for word in words if word not in ("-c", "-MD", "-MMD")]
    words[1:1] = ["-DPETSC_USE_64BIT_INDICES=1", "-fsyntax-only"]
    done = subprocess.run(words, cwd=command["directory"], capture_output=True, text=True)
    return done.stderr if done.returncode else ""


def kernels_with_petsc_int(folder):
    for path in sorted(glob.glob(f"{folder}/cuda/**/*.cu*", recursive=True)):
        with open(path) as f:
            for number, line in enumerate(f, 1):
                if re.search(r"\bPetscInt\b", line) and not any(name in line for name in BORDER):
                    yield f"{os.path.relpath(path, folder)}:{number}: PetscInt, where kernels have LocalInt: {line.strip()}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--source", required=True)
    folders = parser.parse_args()
    problems = list(kernels_with_petsc_int(folders.source))
    with open(f"{folders.build}/compile_commands.json") as f:
        commands = [c for c in json.load(f) if re.search(r"finepc_(objects|l1jacobi|tests|bench|fuzz)\.dir", c["command"])
                    and c["file"].endswith(".cxx")]
    if not commands:
        problems.append("compile_commands.json has no sources of the library, or of its tests")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        problems += [said for said in pool.map(check_source, commands) if said]
    print("\n".join(problems) or f"{len(commands)} sources compile with 64-bit indices")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
