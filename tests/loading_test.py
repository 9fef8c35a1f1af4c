#!/usr/bin/env python3
"""The ways in which finepc gets into a program: linked, or loaded by options. One case per run (ctest has an entry for each):

    loading_test.py CASE --build BUILD_FOLDER --source SOURCE_FOLDER

Every type that src/register.cxx registers is used in every way. Exit code 77: the case cannot run here."""
import argparse
import os
import re
import subprocess
import sys

SKIPPED = 77


def fail(why, run=None):
    print("FAILED:", why)
    if run:
        print(run.stdout)
    sys.exit(1)


def run(command, options="", **variables):
    """The command, with more options in PETSC_OPTIONS and other variables in its environment."""
    environment = dict(os.environ, **variables)
    environment["PETSC_OPTIONS"] = (environment.get("PETSC_OPTIONS", "") + " " + options).strip()
    print("+", options and f"PETSC_OPTIONS='{options}'", " ".join(f"{k}={v}" for k, v in variables.items()), *command, flush=True)
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    return subprocess.run(command, env=environment, timeout=120, **output)


def registered(source, kind):
    """Types as users write them: PCRegister(PCAFSAI, ...) and #define PCAFSAI "afsai"."""
    constants = re.findall(kind + r"Register\((\w+),", open(f"{source}/src/register.cxx").read())
    header = open(f"{source}/include/finepc.h").read()
    names = []
    for constant in constants:
        name = re.search(rf'#define {constant}\s+"(\w+)"', header)
        if not name:
            fail(f"include/finepc.h does not define {constant}")
        names.append(name.group(1))
    return names


NEEDED_PC = {"rrbcg": "rrb"}  # KSP types that work with one preconditioner alone, and that preconditioner


class Cases:
    def __init__(self, build, source):
        self.build, self.source = build, source
        self.library = f"{build}/lib/libfinepc.so"
        self.pcs, self.ksps = registered(source, "PC"), registered(source, "KSP")
        if not self.pcs or not self.ksps:
            fail("no PCRegister or no KSPRegister in src/register.cxx")
        self.ex1 = f"{build}/tutorials/ex1"

    def types(self):
        """(options that choose a type, what -ksp_view prints then)"""
        for pc in self.pcs:
            yield ["-pc_type", pc], f"type: {pc}"
        for ksp in self.ksps:
            yield ["-ksp_type", ksp, *(["-pc_type", NEEDED_PC[ksp]] if ksp in NEEDED_PC else [])], f"type: {ksp}"

    def expect(self, result, *texts):
        if result.returncode:
            fail(f"exit code {result.returncode}", result)
        for text in texts:
            if text not in result.stdout:
                fail(f"{text!r} is missing in the output", result)

    def not_linked(self, program):
        dynamic = subprocess.run(["readelf", "-d", program], stdout=subprocess.PIPE, text=True, check=True).stdout
        if re.search(r"NEEDED.*finepc", dynamic) or "NEEDED" not in dynamic:
            fail(f"{program} is linked with finepc, so it proves nothing")
        for kind, names in (("PC", self.pcs), ("KSP", self.ksps)):
            result = run([program, f"-{kind.lower()}_type", names[0]])
            if result.returncode == 0 or not re.search(r"Unable to find requested (PC|KSP) type", result.stdout):
                fail(f"the {kind} type is there without the library", result)

    def command_line(self):
        self.not_linked(self.ex1)
        for options, text in self.types():
            self.expect(run([self.ex1, "-dll_append", self.library, *options, "-ksp_view", "-ksp_max_it", "5"]), text)
        self.expect(run([self.ex1, "-dll_append", self.library, "-pc_type", "afsai"]), "Converged after")

    def environment(self):
        self.not_linked(self.ex1)
        for options, text in self.types():
            self.expect(run([self.ex1, *options, "-ksp_view", "-ksp_max_it", "5"], options=f"-dll_append {self.library}"), text)
            everything = f"-dll_append {self.library} {' '.join(options)} -ksp_view -ksp_max_it 5"
            self.expect(run([self.ex1], options=everything), text)

    def petsc_tutorial(self):
        program = f"{self.build}/tests/petsc_ex2"
        if not os.path.exists(program):
            print("skipped: this PETSc has no tutorials beside it")
            sys.exit(SKIPPED)
        self.not_linked(program)
        for options, text in self.types():
            self.expect(run([program, "-dll_append", self.library, *options, "-ksp_view", "-ksp_max_it", "5"]), text)
            self.expect(run([program, *options, "-ksp_view", "-ksp_max_it", "5"], options=f"-dll_append {self.library}"), text)
        arguments = ["-m", "30", "-n", "30", "-ksp_type", "cg", "-dll_append", self.library, "-pc_type", "afsai"]
        self.expect(run([program, *arguments]), "Norm of error")

    def petsc_cavity(self):
        """Block-ISAI in PETSc's driven cavity, 4 unknowns a point, by options alone, and its iterations beside those with
        triangular solves."""
        program = f"{self.build}/tests/petsc_ex19"
        if not os.path.exists(program):
            print("skipped: this PETSc has no tutorials beside it")
            sys.exit(SKIPPED)
        self.not_linked(program)
        device = os.path.exists("/proc/driver/nvidia/version")
        on_device = ["-dm_vec_type", "cuda"] if device else []
        types = [("baij", []), ("aij", []), ("baijcuda", on_device)] + ([("aijcusparse", on_device)] if device else [])
        common = ["-da_grid_x", "24", "-da_grid_y", "24", "-ksp_pc_side", "right"]
        common += ["-ksp_converged_reason", "-snes_converged_reason"]

        def first(options):
            result = run([program, "-dll_append", self.library, *common, *options])
            self.expect(result, "Nonlinear solve converged")
            return int(re.search(r"Linear solve converged due to \w+ iterations (\d+)", result.stdout).group(1))

        exact = first(["-dm_mat_type", "baij", "-pc_type", "ilu"])
        for name, more in types:
            bisai = ["-dm_mat_type", name, "-pc_type", "bisai", *more]
            counts = [first([*bisai, "-pc_bisai_power", str(power)]) for power in (1, 2, 3)]
            if not 2.5 * exact >= counts[0] >= counts[1] >= counts[2] >= exact:
                fail(f"{name}: {counts} iterations with powers 1, 2, 3, {exact} with triangular solves")

    def petsc4py(self):
        script = f"{self.source}/tests/loading_petsc4py.py"
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        for python in (os.environ.get("FINEPC_PYTHON"), "python3"):
            if python and subprocess.run([python, "-c", "from petsc4py import PETSc"], **silent).returncode == 0:
                break
        else:
            print("skipped: no Python with petsc4py (FINEPC_PYTHON, python3)")
            sys.exit(SKIPPED)
        for kind, names in (("pc", self.pcs), ("ksp", self.ksps)):
            for name in names:
                texts = f"{kind} {name} ", "residual below 1e-4: True"
                choice = [f"-{kind}", name, *(["-pc", NEEDED_PC[name]] if name in NEEDED_PC else [])]
                self.expect(run([python, script, "-dll_append", self.library, *choice]), *texts)
                self.expect(run([python, script, *choice], options=f"-dll_append {self.library}"), *texts)
            if run([python, script, f"-{kind}", names[0]]).returncode == 0:
                fail(f"the {kind} type is there without the library")
        self.expect(run([python, f"{self.source}/docs/examples/first.py", self.library]), "reason: 2") # KSP_CONVERGED_RTOL
        with open(f"{self.source}/docs/recipes/reservoirs.md", encoding="utf-8") as f:
            lines = re.search(r"```sh\n(.*?)```", f.read(), re.S).group(1).split() # the options that the page recommends
        program = [python, f"{self.source}/docs/examples/reservoir.py", "-dll_append", self.library]
        self.expect(run([*program, "-n", "40", *lines, "-options_left"]), "reason 2,", "There are no unused options")

    def linked(self):
        program = f"{self.build}/tests/twice_linked"
        for options, text in self.types():
            self.expect(run([program, *options, "-ksp_view"]), text)

    def twice(self):
        """PetscFinalize() and another PetscInitialize(), linked, loaded, and both at once."""
        cycles = [f"cycle {cycle}: " for cycle in (1, 2, 3)]
        linked, loaded = f"{self.build}/tests/twice_linked", f"{self.build}/tests/twice_loaded"
        self.not_linked(loaded)
        self.expect(run([linked]), *cycles)
        self.expect(run([loaded, "-dll_append", self.library]), *cycles)
        self.expect(run([loaded], options=f"-dll_append {self.library}"), *cycles)
        self.expect(run([linked, "-dll_append", self.library]), *cycles)
        for way in ([linked], [loaded, "-dll_append", self.library]):
            result = run([*way, "-malloc_debug", "-malloc_dump"])
            self.expect(result, *cycles)
            if "bytes " in result.stdout:
                fail("memory is left over", result)

    def wrong_petsc(self):
        """A PETSc of another minor release, or with complex scalars: one clear error, no crash."""
        fake = f"{self.build}/tests/libfake_petsc.so"
        own_name = [f"{self.build}/tutorials/ex6"] # it never calls FinePCInitializePackage()
        linked = [f"{self.build}/tests/twice_linked"]
        ways = [[self.ex1, "-dll_append", self.library, "-pc_type", "afsai"], linked, own_name]
        errors = {"minor": "build finepc again with this PETSc", "complex": "works with real double precision scalars"}
        for what, text in errors.items():
            for way in ways:
                result = run(way, LD_PRELOAD=fake, FAKE_PETSC=what)
                if result.returncode == 0:
                    fail("it ran", result)
                if result.returncode < 0 or "Caught signal" in result.stdout:
                    fail("it crashed", result)
                if text not in result.stdout:
                    fail(f"{text!r} is missing in the output", result)
        for way in ways:
            self.expect(run(way, LD_PRELOAD=fake, FAKE_PETSC="nothing"))

    def foreign_petsc(self):
        """A PETSc beside the one that libfinepc.so was built with opens it: an error that names both, before any call of MPI."""
        foreign = f"{self.build}/tests/libforeign_petsc.so"
        program = "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).AppendLibrary(sys.argv[2].encode()) != 76)"
        result = run([sys.executable, "-c", program, foreign, self.library])
        self.expect(result, "error 76", "but PETSc 3.99.7 is running", foreign, "libpetsc", "build finepc again with this PETSc")
        if not re.search(r"built with PETSc 3\.\d+, ", result.stdout):
            fail("the release of libfinepc.so is not named", result)

    def missing_library(self):
        result = run([self.ex1, "-dll_append", "/nowhere/libfinepc.so", "-pc_type", "afsai"])
        if result.returncode == 0 or "/nowhere/libfinepc.so" not in result.stdout:
            fail("a missing library is not named", result)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case")
    parser.add_argument("--build", required=True)
    parser.add_argument("--source", required=True)
    options = parser.parse_args()
    getattr(Cases(options.build, options.source), options.case)()
    print("passed")


if __name__ == "__main__":
    main()
