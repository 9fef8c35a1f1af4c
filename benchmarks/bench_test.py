"""What finepc_bench says and does where something is wrong: with a system, the command line, the time, a file to write, a signal.

Usage: bench_test.py --bench PROGRAM [--mpiexec PROGRAM]
"""
import argparse
import json
import os
import resource
import signal
import struct
import subprocess
import tempfile
import time
from pathlib import Path


USER = ("DIVERGED_USER", "DIVERGED_NULL")  # the name from PETSc 3.24 on, and before


def integers(*values):
    return struct.pack(f">{len(values)}i", *values)


def reals(*values):
    return struct.pack(f">{len(values)}d", *values)


MATRIX, VECTOR = 1211216, 1211214  # with which PETSc's binary files begin
BANNER = "%%MatrixMarket matrix coordinate real symmetric\n"
IDENTITY = integers(MATRIX, 2, 2, 2) + integers(1, 1) + integers(0, 1) + reals(1, 1)
BAD_FILES = {  # what each file holds, or None for no file, and what is said about it
    "file:none.petsc": (None, "Cannot open file"),
    "file:empty.petsc": (b"", "Read past end of file"),
    "file:other.petsc": (integers(VECTOR, 2, 0, 0), "does not begin with a matrix of PETSc's"),
    "file:dense.petsc": (integers(MATRIX, 2, 2, -1) + reals(1, 0, 0, 1), "has a matrix of 2 by 2 with -1 entries"),
    "file:row.petsc": (integers(MATRIX, 2, 2, 2, 3, -1, 0, 1) + reals(1, 1), "has a row of -1 entries"),
    "file:rows.petsc": (integers(MATRIX, 2, 2, 2, 1, 2, 0, 1) + reals(1, 1), "have 3 entries, but the matrix has 2"),
    "file:column.petsc": (integers(MATRIX, 2, 2, 2, 1, 1, 0, 2147483647) + reals(1, 1), "has an entry in column 2147483647 of 2"),
    "file:values.petsc": (IDENTITY[:-8], "ends before the last value of the matrix"),
    "file:rhs.petsc": (IDENTITY + integers(VECTOR, 2) + reals(1), "is no right-hand side"),
    "file:wide.petsc": (integers(MATRIX, 1, 2, 1, 1, 0) + reals(1), "1 by 2 is no linear system"),
    "file:nothing.petsc": (integers(MATRIX, 0, 0, 0), "0 by 0 is no linear system"),
    "file:packed.petsc.gz": (b"not packed", 'Cannot read "packed.petsc.gz": gzip: '),
    "file:packed.petsc.xz": (b"not packed", 'Cannot read "packed.petsc.xz": xz: '),
    "mtx:none.mtx": (None, "No such file"),
    "mtx:banner.mtx": (b"1 1 1\n", "does not begin with %%MatrixMarket"),
    "mtx:vector.mtx": (b"%%MatrixMarket vector coordinate real general\n2 1\n1 1\n", "it is vector coordinate real general, but"),
    "mtx:complex.mtx": (b"%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 0\n", "it is matrix coordinate complex"),
    "mtx:end.mtx": (BANNER.encode(), "does not have three whole numbers"),
    "mtx:negative.mtx": (f"{BANNER}3 3 -5\n1 1 2\n".encode(), "does not have three whole numbers, of which none is negative"),
    "mtx:less.mtx": (f"{BANNER}2 2 2\n1 1 1\n".encode(), "it has 1 entries, but says that there are 2"),
    "mtx:more.mtx": (f"{BANNER}2 2 2\n1 1 1\n2 2 1\n2 1 1\n".encode(), "it has 3 entries, but says that there are 2"),
    "mtx:many.mtx": (f"{BANNER}3000000000 3000000000 1\n1 1 1\n".encode(), "3000000000 columns and 1 entries, but PETSc's indices"),
    "mtx:row.mtx": (f"{BANNER}2 2 1\n4294967297 1 1\n".encode(), 'Cannot read "row.mtx": '),  # scipy says why, from here on
    "mtx:column.mtx": (f"{BANNER}2 2 1\n1 3 1\n".encode(), 'Cannot read "column.mtx": '),
    "mtx:zero.mtx": (f"{BANNER}2 2 1\n0 1 1\n".encode(), 'Cannot read "zero.mtx": '),
    "mtx:value.mtx": (f"{BANNER}2 2 1\n1 1 1.5D+03\n".encode(), "line 3 is not a row, a column and a value"),
    "mtx:packed.mtx.gz": (b"not packed", 'Cannot read "packed.mtx.gz": '),
    "mtx:packed.mtx.xz": (b"not packed", 'Cannot read "packed.mtx.xz": '),
}
BAD_SYSTEMS = {
    "poisson2d5:65536": "would have 4294967296 unknowns, but PETSc's indices end at 2147483647",
    "poisson2d5:65537": "would have 4295098369 unknowns",
    "poisson3d7:2147483646": "unknowns, but PETSc's indices end at 2147483647",
    "elasticity3d:1x26754x26755": "would have 2147570340 unknowns",
    "poisson2d5:46340x46340": "entries, but PETSc's indices end at 2147483647: take more ranks",
    "poisson2d5:99999999999999999999": '"99999999999999999999" is no whole number from 1 to 2147483646',
    "poisson2d5:0": '"0" is no whole number from 1 to',
    "poisson2d5:-5": '"-5" is no whole number from 1 to',
    "poisson2d5:abc": '"abc" is no whole number from 1 to',
    "poisson2d5:1e3": '"1e3" is no whole number from 1 to',
    "poisson2d5:20x": '"" is no whole number from 1 to',
    "poisson2d5:2x3x4": '"2x3x4" is neither one size nor 2 with x between them',
    "poisson2d5:20:30": "There are 2 arguments, but poisson2d5 takes at most 1",
    "poisson2d5": "needs a size",
    "jumps:10:nan": '"nan" is no number',
    "jumps:10:-1": "must be positive",
    "jumps:10:1e4:0": '"0" is no whole number from 1 to',
    "euler2d:5:0": "CFL number must be positive",
    "euler2d:1x5": "need two points in each direction",
    "shell2d:5:0": "thickness must be positive",
    "shell2d:5:1:-1": "the stiffness of the bed not negative",
    "block3d7:4:9": "There can be 1 to 8 fields",
    "boxes": "boxes needs a size",
    "boxes:6x1x1": 'Unknown system ""',
    "boxes:7x1x1:poisson3d7:6": "6 points are too few for 7 boxes",
    "boxes:6x1x1:block3d7:6:2": "There are 432 unknowns and 6 x 6 x 6 points, but boxes are of systems with one unknown",
    "boxes:6x1x1:6:poisson3d7:6": "poisson3d7:6 has its own grid: only boxes of a file need one",
    "boxes:6x1x1:file:good.petsc": "Boxes of a file need the points of its grid",
    "boxes:6x1x1:6x2x1:file:good.petsc": "There are 2 unknowns and 6 x 2 x 1 points, but boxes are of systems with one unknown",
    "nonsense:5": 'Unknown system "nonsense:5"; there are poisson2d5:N',
}
FOREVER = "forever: -ksp_type richardson -ksp_richardson_scale 1e-12 -pc_type jacobi\n"  # the residual does not change


class Benchmark:
    def __init__(self, program, mpiexec, folder):
        self.program, self.mpiexec, self.folder = program, mpiexec, Path(folder)

    def command(self, arguments, ranks=1):
        return ([self.mpiexec, "-n", str(ranks)] if ranks > 1 else []) + [self.program, *arguments.split()]

    def run(self, arguments, ranks=1, **options):
        return subprocess.run(self.command(arguments, ranks), cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=120, **options)

    def all_ranks(self):
        return (1, 2) if self.mpiexec else (1,)


def each_bad_system_is_named(bench):
    for system, (content, _) in BAD_FILES.items():
        if content is not None:
            Path(bench.folder, system.split(":")[1]).write_bytes(content)
    Path(bench.folder, "good.petsc").write_bytes(IDENTITY)
    Path(bench.folder, "good.mtx").write_text(f"{BANNER}% a comment\n\n2 2 2\n1 1 1\n2 2 1E0\n")
    bad = {**{system: reason for system, (_, reason) in BAD_FILES.items()}, **BAD_SYSTEMS}
    for ranks in bench.all_ranks():
        run = bench.run(f"-check -backend host -systems {','.join([*bad, 'file:good.petsc', 'mtx:good.mtx'])}", ranks)
        for system, reason in bad.items():
            said = [line for line in run.stdout.splitlines() if f"finepc_bench: system {system}: " in line]
            assert len(said) == 1 and reason in said[0], f"{ranks} ranks, {system}:\n{run.stdout}"
        run_of_five = bench.run("-check -backend host -systems boxes:5x1x1:poisson3d7:6", ranks)
        shared = "boxes cannot be shared equally" in run_of_five.stdout
        assert shared == (ranks > 1), f"{ranks} ranks have 5 boxes"
        loaded = [line for line in run.stdout.splitlines() if "check good: cg + jacobi converges: passed" in line]
        assert len(loaded) == 2 and run.returncode, f"{ranks} ranks: the systems that are good are not there\n{run.stdout}"


def ranks_make_the_same_matrix(bench):
    for system in ("fingers2d:8x7", "elasticity3d_tets:3x4x5", "elasticity3d:3x4x5:10:2:10", "block2d7:9x8:4", "euler2d:13x9",
                   "shell2d:12x9"):
        for ranks in bench.all_ranks():
            bench.run(f"-check -backend host -systems {system} -bench_mat_view binary:ranks_{ranks}.petsc", ranks, check=True)
        written = {Path(bench.folder, f"ranks_{ranks}.petsc").read_bytes() for ranks in bench.all_ranks()}
        assert len(written) == 1, f"{system} depends on the number of ranks"


def scipy_is_asked_for(bench):
    Path(bench.folder, "scipy.py").write_text("raise ImportError\n")
    run = bench.run("-check -backend host -systems mtx:good.mtx", env={**os.environ, "PYTHONPATH": str(bench.folder)})
    assert "system mtx:good.mtx: Cannot read \"good.mtx\": Matrix Market files are read by scipy" in run.stdout, run.stdout


def a_wrong_command_line_runs_nothing(bench):
    for ranks in bench.all_ranks():
        for arguments, said in {
            "": "-systems is missing",
            "-backend host": "-systems is missing",
            "-system poisson2d5:9": "there is no option -system, but there is -systems",
            "-systems poisson2d5:9 -nonsense 5": "there is no option -nonsense",
            "-systems poisson2d5:9, poisson2d5:10": '"poisson2d5:10" belongs to no option',
        }.items():
            run = bench.run(arguments, ranks)
            assert f"finepc_bench: {said}" in run.stdout and run.returncode and "copy" not in run.stdout, run.stdout
            assert ("-set_limit" in run.stdout) == (arguments == ""), run.stdout  # the usage
    run = bench.run("-help")
    assert not run.returncode and "-set_limit" in run.stdout and "finepc_bench:" not in run.stdout, run.stdout
    # options of PETSc's and finepc's objects, also of those inside others, and options of other programs in the environment
    run = bench.run("-systems poisson2d5:9 -backend host -only jacobi -repeats 0 -ksp_view -sub_pc_type icc -pc_afsai_max_steps 5",
                    env={**os.environ, "PETSC_OPTIONS": os.environ.get("PETSC_OPTIONS", "") + " -other_program 1"})
    assert not run.returncode and "type: jacobi" in run.stdout and "| ok " in run.stdout, run.stdout


def default_sets_suit_the_system(bench):
    always = {"none", "jacobi", "icc", "gamg", "afsai", "sfsai", "cgfused-jacobi", "cgfused-afsai"}
    for system, labels in {
        "poisson3d7:5": always | {"cmatch", "cgfused-cmatch"},
        "poisson2d5:9": always | {"cmatch", "cgfused-cmatch", "rrb", "rrbcg"},
        "elasticity3d:3": always | {"bisai"},
        "block3d7:4:2": {"gmres-jacobi", "gmres-ilu", "bisai"},
        "file:good.petsc": always | {"cmatch", "cgfused-cmatch"},
    }.items():
        run = bench.run(f"-systems {system} -backend host -repeats 0 -applies 0 -json sets.json")
        results = json.loads(Path(bench.folder, "sets.json").read_text())["systems"][0]["results"]
        assert {result["label"] for result in results} == labels, (system, results)
        assert all(result["status"] == "ok" for result in results), run.stdout


def an_iteration_has_the_bytes_of_its_parts(bench):
    """Product, preconditioner and two passes over the basis, counted one by one; the labels say what is special."""
    plain, bs, restart = "-ksp_gmres_restart 4 -ksp_type ", 2, 4
    sets = {
        "gmres none": plain + "gmres -pc_type none",
        "fused none": plain + "gmresfused -pc_type none",
        "fused one none": plain + "gmresfused -pc_type none -ksp_gmresfused_step_size 1",
        "fused jacobi": plain + "gmresfused -pc_type jacobi",
        "fused single none": plain + "gmresfused -pc_type none -ksp_gmresfused_basis_precision single",
        "fused flexible jacobi": plain + "gmresfused -pc_type jacobi -ksp_gmresfused_flexible",
        "fused block pbjacobi": plain + "gmresfused -pc_type pbjacobi -mat_type block",
        "fgmres none": plain + "fgmres -pc_type none",
    }
    Path(bench.folder, "bytes.txt").write_text("".join(f"{label.replace(' ', '-')}: {sets[label]}\n" for label in sets))
    bench.run("-systems block3d7:5:2 -backend host -repeats 0 -applies 0 -sets bytes.txt -json bytes.json")
    system = json.loads(Path(bench.folder, "bytes.json").read_text())["systems"][0]
    rows, nnz = system["rows"], system["nnz"]
    assert [result["label"].replace("-", " ") for result in system["results"]] == list(sets), system
    for result in system["results"]:
        words, its = result["label"].split("-"), result["iterations"]
        value = 4 if "single" in words else 8
        step = 2 if "fused" in words and "flexible" not in words and "one" not in words else 1 # products between two reads
        vectors = sum(iteration % restart + 1 for iteration in range(its) if iteration % restart % step == 0) / its
        expected = nnz * 12 + rows * 20
        if "block" in words:
            expected = nnz * 8 + nnz / bs**2 * 4 + rows / bs * 4 + rows * 16
        expected += 2 * vectors * rows * value + 2 * rows * 8 + rows * value
        expected += {"none": 0, "jacobi": rows * 8, "pbjacobi": rows * (bs + 2) * 8}[words[-1]]
        expected += rows * 8 if "flexible" in words else 0
        if "fgmres" in words:
            expected = 0  # of which nothing is known
        assert its > 4 and abs(result["iteration_bytes"] - expected) < 1, (result, expected)


def a_set_ends_with_its_time(bench):
    """Without the limit this would take hours, and the history 16 GB."""
    Path(bench.folder, "sets.txt").write_text(FOREVER + "jacobi: -pc_type jacobi\n")
    def limit_memory():
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))

    for ranks in bench.all_ranks():
        run = bench.run("-systems poisson2d5:4x2 -backend host -sets sets.txt -max_it 2000000000 -set_limit 3 -json limit.json",
                        ranks, preexec_fn=limit_memory)
        late, other = json.loads(Path(bench.folder, "limit.json").read_text())["systems"][0]["results"]
        assert late["status"] == "time limit" and "0 of 3 warm runs" in late["note"], run.stdout
        assert 2 < late["first"]["solve_s"] < 10 and late["first"]["reason"] in USER, run.stdout
        assert 500 < len(late["history"]) <= 1000, run.stdout
        assert (late["iterations"] > 1000000) == ("the history is that of the first 1000000" in late["note"]), run.stdout
        assert other["status"] == "ok" and len(other["warm"]) == 3 and "| time limit |" in run.stdout, run.stdout
    # a repeat that the limit meets does not count, and those before it do
    run = bench.run("-systems poisson2d5:4x2 -backend host -sets sets.txt -only forever -ksp_max_it 300000 -repeats 100000 "
                    "-set_limit 3 -json limit.json")
    result = json.loads(Path(bench.folder, "limit.json").read_text())["systems"][0]["results"][0]
    assert result["status"] == "diverged" and f"time limit: {len(result['warm'])} of 100000 warm runs" in result["note"], run.stdout
    assert all(timing["reason"] == "DIVERGED_ITS" for timing in result["warm"]), result


def a_warm_run_solves_as_often_as_asked(bench):
    for ranks in bench.all_ranks():
        for option, count in (("", 1), ("-solves 4", 3)):
            bench.run(f"-systems poisson2d5:9 -backend host -only jacobi -repeats 2 {option} -json solves.json", ranks, check=True)
            result = json.loads(Path(bench.folder, "solves.json").read_text())["systems"][0]["results"][0]
            assert not result["first"]["later"] and len(result["warm"]) == 2, result
            for run in result["warm"]:
                assert [again["iterations"] for again in run["later"]] == count * [run["iterations"]], run
                assert run["later"][0]["s"] == run["solve_again_s"] > 0, run


def what_cannot_be_written_keeps_the_old_file(bench):
    arguments = "-systems poisson2d5:9 -backend host -only jacobi -repeats 0 -json kept.json"
    bench.run(arguments.replace("poisson2d5:9", "poisson2d5:9,poisson2d5:10"))
    kept = Path(bench.folder, "kept.json").read_bytes()
    assert len(json.loads(kept)["systems"]) == 2
    for ranks in bench.all_ranks():
        Path(bench.folder, "kept.json.new").symlink_to("/dev/full")  # what is written first, on a disk that is full
        run = bench.run(arguments, ranks)
        assert run.returncode and 'finepc_bench: Cannot write "kept.json": No space left on device' in run.stdout, run.stdout
        assert Path(bench.folder, "kept.json").read_bytes() == kept and "| ok " in run.stdout, run.stdout
    Path(bench.folder, "link.json").symlink_to("kept.json")
    bench.run(arguments.replace("kept.json", "link.json"))
    assert Path(bench.folder, "link.json").is_symlink()
    assert len(json.loads(Path(bench.folder, "kept.json").read_bytes())["systems"]) == 1


def a_signal_leaves_no_file(bench):
    """The signal comes while a file is being unpacked: gzip and scipy wait for more of it."""
    folder = Path(bench.folder, "temporary")
    folder.mkdir()
    for name in ("slow.petsc.gz", "slow.mtx"):
        os.mkfifo(Path(bench.folder, name))
    for ranks in bench.all_ranks():
        for number in (signal.SIGINT, signal.SIGTERM):
            for system in ("file:slow.petsc.gz", "mtx:slow.mtx"):
                run = subprocess.Popen(
                    bench.command(f"-check -backend host -systems {system}", ranks), cwd=bench.folder, stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL, env={**os.environ, "PETSC_TMP": str(folder)},
                    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # it is ignored in the background
                with open(Path(bench.folder, system.split(":")[1]), "wb"):  # waits for the reader
                    run.send_signal(number)
                    try:
                        run.wait(60)
                    finally:
                        run.kill()
                left = [path.name for path in folder.iterdir() if path.name.startswith("finepc_bench")]
                assert run.returncode and not left, f"{ranks} ranks, {system}, signal {number}: {left}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    parser.add_argument("--mpiexec")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Benchmark(arguments.bench, arguments.mpiexec, folder)
        for test in (each_bad_system_is_named, a_wrong_command_line_runs_nothing, default_sets_suit_the_system,
                     an_iteration_has_the_bytes_of_its_parts, a_set_ends_with_its_time,
                     a_warm_run_solves_as_often_as_asked, what_cannot_be_written_keeps_the_old_file, a_signal_leaves_no_file,
                     ranks_make_the_same_matrix, scipy_is_asked_for):
            start = time.time()
            test(bench)
            print(f"{test.__name__}: ok, {time.time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
