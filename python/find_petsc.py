#!/usr/bin/env python3
"""Prints PETSC_DIR;PETSC_ARCH of the PETSc that petsc4py was built with, or of PyPI's petsc, in the environment of this Python.
For a petsc4py whose PETSc is a library alone, headers are made (petsc_headers.py). Where there is none to build with, it says why,
and ends with the code 1.

pip builds packages in an environment of its own, which hides what is installed beside: site-packages is therefore looked through by
its path, and nothing is imported."""
import os
import re
import site
import sys

import petsc_headers


def site_packages():
    prefixes = [sys.prefix]
    config = os.path.join(sys.prefix, "pyvenv.cfg")
    if os.path.exists(config):
        with open(config) as f:
            if re.search(r"^include-system-site-packages\s*=\s*true", f.read(), re.M | re.I):
                prefixes.append(sys.base_prefix)
    return [path for path in [*sys.path, *site.getsitepackages(prefixes)] if path]


def is_petsc(folder, arch):
    return any(os.path.exists(os.path.join(folder, arch, "lib", "pkgconfig", f"{name}.pc")) for name in ("PETSc", "petsc"))


def with_headers(petsc4py, library):
    """PETSC_DIR of headers for the library of this folder of petsc4py"""
    if not library:
        sys.exit(f"The petsc4py in {petsc4py} has no PETSc to build with: its lib/petsc.cfg names no folder with a PETSc.pc, and "
                 f"it loads no libpetsc. {DO_NOT_REPLACE}")
    try:
        return petsc_headers.headers_for(library, sys.prefix)
    except petsc_headers.NoHeaders as why:
        sys.exit(f"The petsc4py in {petsc4py} comes with {library} and no headers, and they could not be made. {why}\n"
                 f"{DO_NOT_REPLACE}")


DO_NOT_REPLACE = ("Do not install another petsc4py or PETSc into this environment, where it would take the place of the one that "
                  "other packages are built with. Headers of the same release and options can be made by hand, for PETSC_DIR: "
                  'docs/python.md, "A PETSc without headers".')


def main():
    folders, petsc4py = site_packages(), None
    for folder in folders:
        config = os.path.join(folder, "petsc4py", "lib", "petsc.cfg")
        if os.path.exists(config):
            petsc4py = petsc4py or os.path.dirname(os.path.dirname(config))
            with open(config) as f:
                found = dict(re.findall(r"^(PETSC_DIR|PETSC_ARCH)[ \t]*=[ \t]*(\S*)", f.read(), re.M))
            where, arch = found.get("PETSC_DIR", ""), found.get("PETSC_ARCH", "").split(os.pathsep)[0]
            if where and is_petsc(where, arch):
                return print(f"{where};{arch}")
    library = petsc_headers.library_of(petsc4py) if petsc4py else None
    for folder in folders: # petsc4py's wheel may have been built where this PETSc was not yet
        where = os.path.join(folder, "petsc")
        if is_petsc(where, "") and (not library or library.startswith(os.path.realpath(where) + os.sep)):
            return print(f"{where};")
    if not petsc4py:
        sys.exit(f"No PETSc and no petsc4py in the environment of {sys.executable}. Install petsc4py there first, or set PETSC_DIR "
                 "and PETSC_ARCH to those of a PETSc that petsc4py was built with; scripts/setup builds both.")
    print(f"{with_headers(petsc4py, library)};")


if __name__ == "__main__":
    main()
