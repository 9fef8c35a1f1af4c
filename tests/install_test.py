#!/usr/bin/env python3
"""Installs finepc into an empty folder and builds tutorials/ex2.cxx against it, once through pkg-config and once through the
CMake package; both programs run, and so does -dll_append of the installed library:

    install_test.py --build BUILD_FOLDER --source SOURCE_FOLDER"""
import argparse
import os
import shlex
import subprocess
import sys
import tempfile

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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--source", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        prefix = f"{work}/finepc"
        run(["cmake", "--install", options.build, "--prefix", prefix])
        found = {name: os.path.join(folder, name) for folder, _, names in os.walk(prefix) for name in names}
        for name in ("libfinepc.so", "finepc.h", "finepc.pc", "finepc-config.cmake", "finepc-config-version.cmake"):
            if name not in found:
                sys.exit(f"FAILED: {name} is not installed")
        if "afsai.h" in found or "csr.h" in found:
            sys.exit("FAILED: a private header is installed")

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
