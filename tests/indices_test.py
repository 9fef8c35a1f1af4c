#!/usr/bin/env python3
"""Kernels count in LocalInt, so that they do not change with a PETSc whose PetscInt has 64 bits, with which nobody compiles them:
their sources are searched for PetscInt. scripts/test-indices compiles and runs everything else with such a PETSc.

    indices_test.py SOURCE_FOLDER"""
import glob
import os
import re
import sys

# Functions of kernels that take arrays of PETSc's numbers.
BORDER = ("CopyLocalInts", "LocalIntCopy_CUDA")


def kernels_with_petsc_int(paths, folder):
    for path in paths:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if re.search(r"\bPetscInt\b", line) and not any(name in line for name in BORDER):
                    yield f"{os.path.relpath(path, folder)}:{number}: PetscInt, where kernels have LocalInt: {line.strip()}"


folder = sys.argv[1]
paths = sorted(glob.glob(f"{folder}/cuda/**/*.cu*", recursive=True))
problems = list(kernels_with_petsc_int(paths, folder)) or ([] if paths else ["there are no kernels"])
print("\n".join(problems) or f"no PetscInt in {len(paths)} files")
sys.exit(1 if problems else 0)
