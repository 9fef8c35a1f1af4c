#!/usr/bin/env python3
"""The Python package finepc, with the Python that has petsc4py (FINEPC_PYTHON of scripts/setup, or python3). One case per run:

    python_test.py CASE --build BUILD_FOLDER --source SOURCE_FOLDER [--mpiexec MPIEXEC]

Exit code 77: the case cannot run here, because petsc4py or a module of tests/python/requirements.txt is missing; with CI in the
environment that is a failure."""
import argparse
import os
import subprocess
import sys
import tempfile

SKIPPED = 77


def fail(why):
    print("FAILED:", why)
    sys.exit(1)


class Cases:
    def __init__(self, build, source, mpiexec):
        self.build, self.source, self.mpiexec = build, source, mpiexec

    def python_with(self, *modules):
        for python in (os.environ.get("FINEPC_PYTHON"), "python3"):
            silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            if python and subprocess.run([python, "-c", "import " + ", ".join(modules)], **silent).returncode == 0:
                return python
        print(f"no Python with {', '.join(modules)} (FINEPC_PYTHON, python3)")
        sys.exit(1 if os.environ.get("CI") else SKIPPED)

    def run(self, command, packages=None, without=(), **settings):
        environment = {key: value for key, value in os.environ.items() if key not in without}
        environment["PYTHONPATH"] = packages or f"{self.build}/python"
        print("+", *command, flush=True)
        result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **settings)
        print(result.stdout, flush=True)
        if result.returncode:
            fail(f"exit code {result.returncode}")
        return result.stdout

    def tests(self):
        python = self.python_with("petsc4py", "pytest", "skfem", "scipy")
        self.run([python, "-m", "pytest", f"{self.source}/tests/python"], cwd=self.source)

    def ranks(self):
        python = self.python_with("petsc4py")
        output = self.run([self.mpiexec, "-n", "2", python, f"{self.source}/tests/python/ranks.py"])
        if output.count("two ranks agree") != 2:
            fail("not both ranks came to the end")

    def types(self):
        """The package is typed, and a wrong use of it is found."""
        python = self.python_with("petsc4py", "mypy")
        check = [python, "-m", "mypy", "--config-file", f"{self.source}/pyproject.toml", "--cache-dir", f"{self.build}/mypy"]
        self.run([*check, f"{self.build}/python/finepc"], cwd=self.build)
        with tempfile.TemporaryDirectory() as work:
            with open(f"{work}/wrong.py", "w") as f:
                f.write("import finepc\nfrom petsc4py import PETSc\nfinepc.PCAFSAISetMaxSteps(PETSc.PC(), 'many')\n"
                        "steps: str = finepc.PCAFSAIGetMaxSteps(PETSc.PC())\n")
            environment = dict(os.environ, PYTHONPATH=f"{self.build}/python")
            result = subprocess.run([*check, f"{work}/wrong.py"], cwd=work, env=environment, stdout=subprocess.PIPE, text=True)
            found = result.stdout
            if '"str"; expected "int"' not in found or 'has type "int", variable has type "str"' not in found:
                print(found)
                fail("a wrong use of finepc has not been found")

    def tutorial(self):
        python = self.python_with("petsc4py", "scipy", "skfem")
        output = self.run([python, f"{self.source}/tutorials/python_tutorial.py"])
        if "The tutorial has come to its end" not in output:
            fail("the tutorial has not come to its end")

    def fipy(self):
        """One of the programs of tests/applications, whose others scripts/test-nightly runs"""
        python = self.python_with("petsc4py", "fipy", "mpi4py")
        self.run([python, f"{self.source}/tests/applications/fipy_diffusion.py"])

    def install(self):
        """`pip install .` without PETSC_DIR, which it finds through petsc4py, and what it has installed."""
        python = self.python_with("petsc4py", "scikit_build_core", "pip")
        with tempfile.TemporaryDirectory() as work:
            packages = f"{work}/packages"
            # The modules that build a package are pinned and there already. No optimization: nothing is measured.
            options = ["cmake.define.FINEPC_CUDA=OFF", "cmake.define.CMAKE_CXX_FLAGS_RELEASE=-O0"]
            settings = [f"--config-settings={option}" for option in options]
            pip = [python, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
            self.run([*pip, "--target", packages, *settings, self.source], without=("PETSC_DIR", "PETSC_ARCH"))
            append = ["-dll_append", f"{packages}/finepc/libfinepc.so", "-pc", "afsai"]
            output = self.run([python, f"{self.source}/tests/loading_petsc4py.py", *append], packages)
            program = "import finepc; finepc.load(); print(finepc.__file__); from petsc4py import PETSc; " \
                      "PETSc.PC().create().setType('cmatch'); print(finepc.PCAFSAISetMaxSteps.__doc__)"
            output += self.run([python, "-c", program], packages)
        for text in ("residual below 1e-4: True", f"{packages}/finepc/__init__.py", "-pc_afsai_max_steps"):
            if text not in output:
                fail(f"{text!r} is missing in the output")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case")
    parser.add_argument("--build", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    options = parser.parse_args()
    getattr(Cases(options.build, options.source, options.mpiexec), options.case)()
    print("passed")


if __name__ == "__main__":
    main()
