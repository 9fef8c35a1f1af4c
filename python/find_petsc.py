#!/usr/bin/env python3
"""Prints PETSC_DIR;PETSC_ARCH of the PETSc that petsc4py was built with, or of PyPI's petsc, in the environment of this Python.

pip builds packages in an environment of its own, which hides what is installed beside: site-packages is therefore looked through by
its path, and nothing is imported."""
import os
import re
import site
import sys


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


def main():
    folders = site_packages()
    for folder in folders:
        config = os.path.join(folder, "petsc4py", "lib", "petsc.cfg")
        if os.path.exists(config):
            with open(config) as f:
                found = dict(re.findall(r"^(PETSC_DIR|PETSC_ARCH)[ \t]*=[ \t]*(\S*)", f.read(), re.M))
            where, arch = found.get("PETSC_DIR", ""), found.get("PETSC_ARCH", "").split(os.pathsep)[0]
            if where and is_petsc(where, arch):
                return print(f"{where};{arch}")
    for folder in folders: # petsc4py's wheel may have been built where this PETSc was not yet
        where = os.path.join(folder, "petsc")
        if is_petsc(where, ""):
            return print(f"{where};")


if __name__ == "__main__":
    main()
