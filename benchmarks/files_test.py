"""Files that finepc_bench cannot use: each is named with its reason, by all ranks together, and the run goes on with the next.

Usage: files_test.py --bench PROGRAM [--mpiexec PROGRAM]
"""
import argparse
import struct
import subprocess
import tempfile
from pathlib import Path


def integers(*values):
    return struct.pack(f">{len(values)}i", *values)


def reals(*values):
    return struct.pack(f">{len(values)}d", *values)


MATRIX, VECTOR = 1211216, 1211214  # with which PETSc's binary files begin
BANNER = "%%MatrixMarket matrix coordinate real symmetric\n"
IDENTITY = integers(MATRIX, 2, 2, 2) + integers(1, 1) + integers(0, 1) + reals(1, 1)
BAD = {  # what each file holds, or None for no file, and what is said about it
    "file:none.petsc": (None, 'Cannot open file'),
    "file:empty.petsc": (b"", "Read past end of file"),
    "file:other.petsc": (integers(VECTOR, 2, 0, 0), "does not begin with a matrix of PETSc's"),
    "file:dense.petsc": (integers(MATRIX, 2, 2, -1) + reals(1, 0, 0, 1), "has a matrix of 2 by 2 with -1 entries"),
    "file:row.petsc": (integers(MATRIX, 2, 2, 2, 3, -1, 0, 1) + reals(1, 1), "has a row of -1 entries"),
    "file:rows.petsc": (integers(MATRIX, 2, 2, 2, 1, 2, 0, 1) + reals(1, 1), "have 3 entries, but the matrix has 2"),
    "file:column.petsc": (integers(MATRIX, 2, 2, 2, 1, 1, 0, 2147483647) + reals(1, 1), "has an entry in column 2147483647 of 2"),
    "file:values.petsc": (IDENTITY[:-8], "ends before the last value of the matrix"),
    "file:rhs.petsc": (IDENTITY + integers(VECTOR, 2) + reals(1), "is no right-hand side"),
    "mtx:none.mtx": (None, "Cannot open"),
    "mtx:banner.mtx": (b"1 1 1\n", "does not begin as a Matrix Market file"),
    "mtx:short.mtx": (f"{BANNER}2 2 2\n1 1 1\n".encode(), "Entry 2"),
    "mtx:packed.mtx.gz": (b"not packed", "gzip could not unpack"),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    parser.add_argument("--mpiexec")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for system, (content, _) in BAD.items():
            if content is not None:
                Path(folder, system.split(":")[1]).write_bytes(content)
        Path(folder, "good.petsc").write_bytes(IDENTITY)
        systems = ",".join([*BAD, "file:good.petsc"])
        for ranks in (1, 2, 3) if arguments.mpiexec else (1,):
            command = [arguments.mpiexec, "-n", str(ranks)] if ranks > 1 else []
            command += [arguments.bench, "-check", "-backend", "host", "-systems", systems]
            run = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
            for system, (_, reason) in BAD.items():
                said = [line for line in run.stdout.splitlines() if f"finepc_bench: system {system}: " in line]
                assert len(said) == 1 and reason in said[0], f"{ranks} ranks, {system}:\n{run.stdout}"
            loaded = [line for line in run.stdout.splitlines() if "good" in line and "finepc_bench: system" not in line]
            assert loaded, f"{ranks} ranks: the system that is good is not there\n{run.stdout}"


if __name__ == "__main__":
    main()
