#!/usr/bin/env python3
"""Installs finepc into an empty folder and builds tutorials/ex2.cxx against it, once through pkg-config and once through the
CMake package, and tutorials/ex6.c in a project that has no C++; the programs run, and so does -dll_append of the installed library.
A PETSc of another patch release is taken; one of another minor release, or with other scalars, is refused. Without PETSc the
configuration points to scripts/setup. The archive for machines without a compiler runs its test program:

    install_test.py --build BUILD_FOLDER --source SOURCE_FOLDER"""
import argparse
import os
import shlex
import subprocess
import sys
import tempfile

C_CONSUMER = """cmake_minimum_required(VERSION 3.22)
project(consumer LANGUAGES C)
find_package(finepc REQUIRED)
add_executable(in_c {source}/tutorials/ex6.c)
target_link_libraries(in_c PRIVATE finepc::finepc)
"""

CONSUMER = """cmake_minimum_required(VERSION 3.22)
project(consumer LANGUAGES CXX)
find_package(finepc REQUIRED)
add_executable(by_cmake {source}/tutorials/ex2.cxx)
target_link_libraries(by_cmake PRIVATE finepc::finepc)
"""


def run(command, **variables):
    print("+", *command, flush=True)
    environment = dict(os.environ, **variables)
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    if result.returncode:
        print(result.stdout)
        sys.exit(f"FAILED: exit code {result.returncode}")
    return result.stdout


def check_try(found, work):
    """The installed finepc-try with the installed benchmark program and library, found without LD_LIBRARY_PATH"""
    if "finepc-try" not in found or "finepc_bench" not in found:
        sys.exit("FAILED: finepc-try or finepc_bench is not installed")
    with open(f"{work}/three.mtx", "w") as f:
        f.write("%%MatrixMarket matrix coordinate real symmetric\n3 3 5\n1 1 2\n2 2 2\n3 3 2\n2 1 -1\n3 2 -1\n")
    options = ["--backend", "host", "--only", "afsai,jacobi", "--output", f"{work}/try"]
    said = run([found["finepc-try"], f"{work}/three.mtx", *options], LD_LIBRARY_PATH="", FINEPC_BENCH="")
    if "cg afsai" not in said or "The fastest is" not in said:
        sys.exit(f"FAILED: the installed finepc-try does not print what it should:\n{said}")


def check_archive(build, work):
    """What cpack would put into the archive, unpacked, with PETSc's library in it"""
    for component in ([], ["--component", "package"]):
        run(["cmake", "--install", build, *component, "--prefix", f"{work}/archive"])
    said = run([f"{work}/archive/run-tests", "[options]"], PETSC_DIR="", PETSC_ARCH="")
    if "All tests passed" not in said:
        sys.exit(f"FAILED: run-tests of the archive does not run a case:\n{said}")


def refused(command, text, **variables):
    """The command must end with an error that says the text; CMake breaks its lines."""
    print("+", *command, flush=True)
    environment = dict(os.environ, **variables)
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    if not result.returncode or text not in " ".join(result.stdout.split()):
        print(result.stdout)
        sys.exit(f"FAILED: exit code {result.returncode}, and no error {text!r}")


def petsc_of_release(folder, pkg_config, version):
    """A folder with a PETSc.pc that is the present one, but for its version."""
    path = f"{folder}/petsc-{version}"
    os.makedirs(path)
    present = run(["pkg-config", "--variable=pcfiledir", "PETSc"], **pkg_config).strip()
    name = next(name for name in os.listdir(present) if name.lower() == "petsc.pc")
    with open(f"{present}/{name}") as source, open(f"{path}/PETSc.pc", "w") as f:
        for line in source.read().replace("${pcfiledir}", present).splitlines():
            f.write((f"Version: {version}" if line.startswith("Version:") else line) + "\n")
    return path


def petsc_of_scalars(folder, pkg_config, version, macros):
    """A folder with a PETSc.pc that is the present one, but for these macros of its configuration"""
    path = petsc_of_release(folder, pkg_config, version)
    os.makedirs(f"{path}/include")
    with open(f"{path}/include/petscconf.h", "w") as f:
        f.write(f"#include_next <petscconf.h>\n{macros}\n")
    with open(f"{path}/PETSc.pc") as f:
        lines = f.read().replace("Cflags:", f"Cflags: -I{path}/include")
    with open(f"{path}/PETSc.pc", "w") as f:
        f.write(lines)
    return path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--source", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        prefix = f"{work}/finepc"
        run(["cmake", "--install", options.build, "--prefix", prefix])
        found = {name: os.path.join(folder, name) for folder, _, names in os.walk(prefix) for name in names}
        for name in ("libfinepc.so", "finepc.h", "finepc.pc", "finepc-config.cmake", "finepc-config-version.cmake",
                     "afsai_default.opts", "ex6.c", "README.md"):
            if name not in found:
                sys.exit(f"FAILED: {name} is not installed")
        check_archive(options.build, work)
        if "afsai.h" in found or "csr.h" in found:
            sys.exit("FAILED: a private header is installed")

        if not os.path.islink(found["libfinepc.so"]) or "libfinepc.so." not in os.readlink(found["libfinepc.so"]):
            sys.exit("FAILED: libfinepc.so is no link to a library with a version")

        petsc = os.environ["PETSC_DIR"]
        arch = os.environ.get("PETSC_ARCH", "")
        search = [os.path.dirname(found["finepc.pc"]), f"{petsc}/{arch}/lib/pkgconfig", f"{petsc}/lib/pkgconfig"]
        pkg_config = {"PKG_CONFIG_PATH": ":".join([*search, os.environ.get("PKG_CONFIG_PATH", "")])}
        flags = shlex.split(run(["pkg-config", "--cflags", "--libs", "finepc"], **pkg_config))
        petsc_lib = run(["pkg-config", "--variable=libdir", "PETSc"], **pkg_config).strip()
        search = [os.path.dirname(found["libfinepc.so"]), petsc_lib, os.environ.get("LD_LIBRARY_PATH", "")]
        libraries = {"LD_LIBRARY_PATH": ":".join(search)}
        run(["mpicxx", "-std=c++17", f"{options.source}/tutorials/ex2.cxx", "-o", f"{work}/by_pkg_config", *flags])

        with open(f"{work}/CMakeLists.txt", "w") as f:
            f.write(CONSUMER.format(source=options.source))
        run(["cmake", "-S", work, "-B", f"{work}/b", f"-DCMAKE_PREFIX_PATH={prefix}"])
        run(["cmake", "--build", f"{work}/b"])

        os.makedirs(f"{work}/c")
        with open(f"{work}/c/CMakeLists.txt", "w") as f:
            f.write(C_CONSUMER.format(source=options.source))
        run(["cmake", "-S", f"{work}/c", "-B", f"{work}/cb", f"-DCMAKE_PREFIX_PATH={prefix}"])
        run(["cmake", "--build", f"{work}/cb"])
        if "Converged after" not in run([f"{work}/cb/in_c"], **libraries):
            sys.exit("FAILED: the program in C does not converge")

        major, minor, patch = run(["pkg-config", "--modversion", "PETSc"], **pkg_config).strip().split(".")
        configure = ["cmake", "-S", f"{work}/c", f"-DCMAKE_PREFIX_PATH={prefix}"]
        for version, taken in ((f"{major}.{minor}.{int(patch) + 7}", True), (f"{major}.{int(minor) + 1}.0", False)):
            first = petsc_of_release(work, pkg_config, version)
            path = {"PKG_CONFIG_PATH": f"{first}:{pkg_config['PKG_CONFIG_PATH']}", "PETSC_DIR": "/nowhere", "PETSC_ARCH": ""}
            if taken:
                run(["pkg-config", "--exists", "--print-errors", "finepc"], **path)
                run([*configure, "-B", f"{work}/taken"], **path)
            else:
                refused(["pkg-config", "--exists", "--print-errors", "finepc"], "PETSc", **path)
                refused([*configure, "-B", f"{work}/refused"], f"built with PETSc {major}.{minor}", **path)
        refused(["cmake", "-S", options.source, "-B", f"{work}/none"], "scripts/setup", PETSC_DIR="/nowhere", PETSC_ARCH="",
                PKG_CONFIG_PATH="", PKG_CONFIG_LIBDIR="/nowhere")

        for name, macros in (("single", "#undef PETSC_USE_REAL_DOUBLE\n#define PETSC_USE_REAL_SINGLE 1"),
                             ("complex", "#define PETSC_USE_COMPLEX 1")):
            first = petsc_of_scalars(f"{work}/{name}", pkg_config, f"{major}.{minor}.{patch}", macros)
            path = {"PKG_CONFIG_PATH": f"{first}:{pkg_config['PKG_CONFIG_PATH']}", "PETSC_DIR": "/nowhere", "PETSC_ARCH": ""}
            configure = ["cmake", "-S", options.source, "-B", f"{work}/of-{name}", "-DFINEPC_CUDA=OFF"]
            refused(configure, "real double precision scalars", **path)

        for program in (f"{work}/by_pkg_config", f"{work}/b/by_cmake"):
            if "Mean temperature 1.000000" not in run([program], **libraries):
                sys.exit(f"FAILED: {program} does not print what it should")
        ex1 = f"{options.build}/tutorials/ex1"
        if "Converged after" not in run([ex1, "-dll_append", found["libfinepc.so"], "-pc_type", "afsai"]):
            sys.exit("FAILED: the installed library does not load")
        check_try(found, work)
    print("passed")


if __name__ == "__main__":
    main()
