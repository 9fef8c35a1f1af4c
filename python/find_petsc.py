#!/usr/bin/env python3
"""Prints PETSC_DIR;PETSC_ARCH of the PETSc that petsc4py was built with, or of PyPI's petsc, in the environment of this Python.
Where there is none to build with, it says why, and ends with the code 1.

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


def release_of(petsc4py):
    with open(os.path.join(petsc4py, "__init__.py")) as f:
        found = re.search(r"^__version__\s*=\s*['\"]([0-9.]+)", f.read(), re.M)
    return found.group(1) if found else "of an unknown release"


def why_not(petsc4py):
    """What to do where no PETSc was found, beside this folder of petsc4py or without one"""
    if not petsc4py:
        return (f"No PETSc and no petsc4py in the environment of {sys.executable}. Install petsc4py there first, or set PETSC_DIR "
                "and PETSC_ARCH to those of a PETSc that petsc4py was built with; scripts/setup builds both.")
    release = release_of(petsc4py)
    return (f"The petsc4py {release} in {petsc4py} comes with a PETSc whose headers are not there: its lib/petsc.cfg names no "
            "folder with a PETSc.pc. Do not install another petsc4py or PETSc into this environment, where it would take the place "
            f"of the one that other packages are built with. Configure the sources of PETSc {release} as that PETSc is configured, "
            'without building them, and set PETSC_DIR to them; docs/python.md shows how ("A PETSc without headers").')


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
    for folder in folders: # petsc4py's wheel may have been built where this PETSc was not yet
        where = os.path.join(folder, "petsc")
        if is_petsc(where, ""):
            return print(f"{where};")
    sys.exit(why_not(petsc4py))


if __name__ == "__main__":
    main()
