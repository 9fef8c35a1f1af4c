#!/usr/bin/env python3
"""Tests of finepc-try: what it sees in matrices, what it tries on them, and what it does when something goes wrong.

    try_test.py --build BUILD_FOLDER --source SOURCE_FOLDER [unittest's arguments]

Exit code 77: this Python has no numpy and scipy."""
import argparse
import contextlib
import glob
import gzip
import io
import json
import lzma
import os
import re
import resource
import stat
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

try:
    import numpy
    import scipy.io
    import scipy.sparse as sparse
except ImportError:
    print("skipped: no numpy and scipy")
    sys.exit(77)

parser = argparse.ArgumentParser()
parser.add_argument("--build", required=True)
parser.add_argument("--source", required=True)
folders, rest = parser.parse_known_args()
folders.build, folders.source = os.path.abspath(folders.build), os.path.abspath(folders.source)
sys.path[:0] = [folders.source, os.path.join(folders.source, "benchmarks")]
bench = os.path.join(folders.build, "benchmarks", "finepc_bench")

import keep  # noqa: E402
from finepc_try import TryError, advice, command, matrix, report, run, session, try_matrix  # noqa: E402
from finepc_try.analyse import analyse  # noqa: E402
from finepc_try.candidates import FINEPC_TYPES, afsai_steps, as_program_options, candidates, chosen, given, sent  # noqa: E402


def line(n):
    return sparse.diags([-1, 2, -1], [-1, 0, 1], shape=(n, n))


def plane(nx, ny):
    """The 5-point stencil, with Dirichlet conditions"""
    return (sparse.kron(line(ny), sparse.identity(nx)) + sparse.kron(sparse.identity(ny), line(nx))).tocsr()


def closed(n):
    """The 5-point stencil, with Neumann conditions all around: constants are in the null space"""
    ends = sparse.diags([-1, 2, -1], [-1, 0, 1], shape=(n, n)).tolil()
    ends[0, 0] = ends[-1, -1] = 1
    return (sparse.kron(ends, sparse.identity(n)) + sparse.kron(sparse.identity(n), ends)).tocsr()


def convection(n):
    return (plane(n, n) + sparse.kron(sparse.diags([-9, 9], [-1, 0], shape=(n, n)), sparse.identity(n))).tocsr()


def blocks(n, size):
    """Coupled diffusion of several fields that is not symmetric"""
    random = numpy.random.default_rng(7)
    coupling = sparse.kron(plane(n, n), numpy.eye(size) + 0.1 * random.random((size, size)))
    return (coupling + sparse.kron(sparse.identity(n * n), random.standard_normal((size, size)))).tocsr()


def boundary_rows(n):
    """Rows of the identity whose columns stay, as MatZeroRows() leaves them"""
    A = plane(n, n).tolil()
    for row in range(n):
        A[row, :] = 0
        A[row, row] = 1
    A = A.tocsr()
    A.eliminate_zeros()
    return A


def looked_at(A):
    return analyse(matrix.load(A)[0])


def attempt(A, rhs=None, **options):
    options.setdefault("backend", "host")
    options.setdefault("bench", bench)
    options.setdefault("time_limit", 30)
    return try_matrix(A, rhs, **options)


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def script(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(name), stat.S_IRWXU)
        return self.path(name)


class Analysis(unittest.TestCase):
    def test_stencils(self):
        five = looked_at(plane(7, 9))
        self.assertEqual((five.stencil, five.grid, five.kind, five.block_size), ("5-point", (7, 9), "spd", 1))
        box = sparse.kron(line(9) + 3 * sparse.identity(9), line(8) + 3 * sparse.identity(8)).tocsr()
        nine = looked_at(box)
        self.assertEqual((nine.stencil, nine.grid), ("9-point", (8, 9)))
        self.assertEqual(looked_at(line(63)).stencil, "")
        ring = plane(7, 9).tolil()
        ring[6, 7] = ring[7, 6] = -1  # the end of a line and the begin of the next
        self.assertEqual(looked_at(ring).stencil, "")

    def test_definiteness(self):
        self.assertEqual(looked_at(plane(12, 12) - 0.8 * sparse.identity(144)).kind, "indefinite")
        self.assertEqual(looked_at(closed(10)).kind, "semidefinite")
        negative = looked_at(-plane(6, 6))
        self.assertEqual(negative.kind, "indefinite")
        self.assertIn("multiplied by -1", " ".join(negative.lines()))
        self.assertNotIn("multiplied by -1", " ".join(looked_at(plane(6, 6)).lines()))
        saddle = sparse.bmat([[plane(5, 5), sparse.identity(25)], [sparse.identity(25), None]]).tocsr()
        found = looked_at(saddle)
        self.assertEqual((found.kind, found.missing_diagonal), ("indefinite", 25))
        smallest = numpy.linalg.eigvalsh((plane(6, 6) / 4).toarray())[0]
        self.assertAlmostEqual(looked_at(plane(6, 6)).smallest_ritz, smallest, places=8)

    def test_symmetry(self):
        self.assertEqual(looked_at(convection(8)).kind, "nonsymmetric")
        kept = looked_at(boundary_rows(8))
        self.assertTrue(kept.symmetric and kept.boundary_rows)
        self.assertEqual((kept.one_sided, kept.kind), (8, "spd"))
        rounded = plane(6, 6)
        rounded.data = rounded.data * (1 + 1e-14 * numpy.arange(rounded.nnz))
        self.assertTrue(looked_at(rounded).symmetric)
        one_sided = plane(6, 6).tolil()
        one_sided[3, 30] = 0.5
        found = looked_at(one_sided)
        self.assertEqual((found.kind, found.one_sided, found.boundary_rows), ("nonsymmetric", 1, False))

    def test_blocks(self):
        for size in (1, 2, 3, 4, 5):
            self.assertEqual(looked_at(blocks(6, size)).block_size, size)
        fields = sparse.kron(plane(6, 6), sparse.identity(3)) + sparse.kron(sparse.identity(36), numpy.ones((3, 3)))
        self.assertEqual(looked_at(fields).block_size, 3)  # each field is coupled to itself alone at other points
        self.assertEqual(looked_at(line(60)).block_size, 1)

    def test_one_row(self):
        self.assertEqual(looked_at(sparse.csr_matrix([[3.0]])).kind, "spd")


class Candidates(unittest.TestCase):
    def labels(self, A, backend="host", ranks=1):
        return [candidate.label for candidate in candidates(looked_at(A), backend, ranks)]

    def test_fit(self):
        elliptic = self.labels(plane(9, 9))
        for label in ("cg jacobi", "cg icc", "cg gamg", "cg afsai", "cg sfsai", "cg cmatch", "cg rrb", "rrbcg rrb"):
            self.assertIn(label, elliptic)
        self.assertIn("cgfused cmatch", self.labels(plane(9, 9), "cuda"))
        stretched = sparse.kron(line(9), sparse.identity(9)) + sparse.kron(sparse.identity(9), line(9) * 1e-3)
        positive = sparse.kron(abs(line(9)), abs(line(9)))  # a 9-point stencil whose couplings are positive
        for stencil in (stretched.tocsr(), positive.tocsr()):
            self.assertIn("cg rrb", self.labels(stencil))
            self.assertIn("cg cmatch", self.labels(stencil))
        found = candidates(looked_at(plane(9, 9)), "host", 1)
        for label in ("cg gamg afsai", "cg gamg sfsai"):
            smoother = next(candidate for candidate in found if candidate.label == label)
            self.assertIn("-mg_levels_ksp_chebyshev_esteig_steps 40", smoother.options)
        coupled = self.labels(blocks(6, 3))
        for label in ("gmres pbjacobi", "gmres ilu", "gmres bisai", "gmres jacobi", "gmres gamg"):
            self.assertIn(label, coupled)
        self.assertFalse([label for label in coupled + self.labels(blocks(6, 3), "cuda") if label.startswith(("cg ", "cgfused"))])
        self.assertFalse([label for label in coupled if label.startswith("gmresfused")])
        self.assertIn("minres jacobi", self.labels(plane(12, 12) - 0.8 * sparse.identity(144)))

    def test_packages(self):
        """Direct solvers, and what else this PETSc has; a Cholesky factor is for matrices that are symmetric throughout."""
        def every(A, packages, backend="cuda", ranks=1):
            found = candidates(looked_at(A), backend, ranks, packages=packages)
            return {candidate.label: candidate for candidate in found}

        packages = ("cudss", "mumps", "superlu_dist", "hypre", "air", "amgx")
        definite = every(plane(9, 9), packages)
        for label in ("cholesky petsc", "cholesky cudss", "cholesky mumps", "lu superlu_dist", "cg hypre", "cgfused amgx"):
            self.assertIn(label, definite)
        self.assertFalse([label for label in definite if "air" in label.split()])
        self.assertFalse(definite["cholesky cudss"].baseline)
        self.assertTrue(definite["cholesky mumps"].baseline)
        lines = as_program_options(definite["cholesky cudss"], looked_at(plane(9, 9)), 1e-6)
        self.assertIn("-pc_factor_mat_solver_type cudss", lines)
        self.assertIn("lu petsc", every(boundary_rows(8), ()))
        self.assertLess({"lu cudss", "gmres air", "gmres hypre"}, set(every(convection(8), packages)))
        self.assertFalse({"cholesky cudss", "cgfused amgx"} & set(every(plane(9, 9), packages, backend="host")))
        self.assertFalse({"cholesky cudss", "cholesky petsc"} & set(every(plane(9, 9), packages, ranks=2)))
        self.assertFalse([label for label in every(closed(8), packages) if label.startswith(("cholesky", "lu"))])
        self.assertFalse([label for label in every(plane(9, 9), (), backend="host") if "hypre" in label])

    def test_sent(self):
        """Where PETSc has no CUDA, what finepc does not have on its own GPU runs on the host, once."""
        solid = sparse.kron(plane(6, 6), numpy.ones((3, 3)) + numpy.identity(3)).tocsr()
        for A in (plane(9, 9), solid, convection(8), blocks(6, 3)):
            found = looked_at(A)
            on_gpu, on_host = candidates(found, "cuda", 1), candidates(found, "host", 1)
            for host_too in (False, True):
                moved = sent(on_gpu, on_host, host_too)
                labels = {candidate.label for candidate in moved if candidate.backend == "host"}
                self.assertEqual(labels, {c.label for c in on_host if host_too or c.baseline})
                there = [c for c in moved if c.backend == "cuda"]
                self.assertTrue(there)
                for c in there:
                    self.assertTrue(c.sent)
                    self.assertIn(c.matrix_type, ("aij", "baij"))
                    self.assertTrue(any(f"-ksp_type {solver}" in c.options for solver in ("cgfused", "gmresfused", "rrbcg")))
                    lines = as_program_options(c, found, 1e-6)
                    self.assertIn("-finepc_backend device", lines)
                    self.assertNotIn("-vec_type cuda", lines)

    def test_fused(self):
        """On a GPU every preconditioner that is tried with cg is tried with cgfused."""
        solid = sparse.kron(plane(6, 6), numpy.ones((3, 3)) + numpy.identity(3)).tocsr()  # positive definite, with blocks
        self.assertEqual((looked_at(solid).kind, looked_at(solid).block_size), ("spd", 3))
        labels = self.labels(solid, "cuda") + self.labels(plane(9, 9), "cuda")
        alone = [label for label in labels if label.startswith("cg ")]
        self.assertTrue(alone)
        for label in alone:
            self.assertIn("cgfused " + label[3:], labels)
        self.assertIn("cgfused cmatch", self.labels(solid, "cuda"))  # which is ahead on elastic solids
        self.assertNotIn("cg cmatch", self.labels(solid))

    def test_thorough(self):
        for A in (plane(9, 9), blocks(6, 3)):
            usual = candidates(looked_at(A), "cuda", 1)
            more = candidates(looked_at(A), "cuda", 1, thorough=True)
            self.assertLess({candidate.label for candidate in usual}, {candidate.label for candidate in more})
            self.assertEqual(len({candidate.label for candidate in more}), len(more))
            self.assertFalse([candidate for candidate in candidates(looked_at(A), "host", 1, thorough=True)
                              if "factor_sweeps" in candidate.options])

    def test_fastest(self):
        """With --thorough whatever is the fastest of its type in the comparison of types, on one of the problems there."""
        def words(options):
            return frozenset(re.findall(r"-\S+ \S+", options.replace("-ksp_pc_side right", "")))

        fastest = {}
        for name in glob.glob(f"{folders.source}/benchmarks/results/which_*.csv"):
            for row in keep.read(name).rows:
                if row["status"] == "ok" and row["pc_type"] in FINEPC_TYPES:
                    fastest[row["system"], row["pc_type"]] = min((row["total_s"], row["options"]),
                                                                 fastest.get((row["system"], row["pc_type"]), (numpy.inf, "")))
        tried = {words(candidate.options) for A in (plane(9, 9), blocks(6, 3))
                 for candidate in candidates(looked_at(A), "cuda", 1, thorough=True)}
        for key, (_, options) in fastest.items():
            with self.subTest(key=key):
                self.assertIn(words(options), tried)
        self.assertGreater(len(fastest), 20)

    def test_given(self):
        found = given(["mine: -ksp_type cg -pc_type sor"], ["host", "cuda"])
        self.assertEqual([(candidate.label, candidate.backend) for candidate in found], [("mine", "host"), ("mine", "cuda")])
        for wrong in ("-ksp_type cg", "mine:", ": -pc_type sor", "mine: sor"):
            with self.assertRaises(ValueError):
                given([wrong], ["host"])

    def test_ranks(self):
        several = self.labels(plane(9, 9), ranks=2)
        self.assertIn("cg bjacobi icc", several)
        self.assertFalse({"cg icc", "rrbcg rrb"} & set(several))

    def test_device(self):
        found = looked_at(blocks(6, 3))
        bisai = next(candidate for candidate in candidates(found, "cuda", 1) if candidate.label == "gmres bisai")
        self.assertNotIn("-pc_bisai_factor ", bisai.options)  # which is finepc's own on a GPU by itself
        lines = as_program_options(bisai, found, 1e-6)
        for option in ("-mat_type baijcuda", "-mat_block_size 3", "-vec_type cuda", "-ksp_rtol 1e-06"):
            self.assertIn(option, lines)
        for power, label in ((None, "bisai"), (2, "bisai power 2"), (3, "bisai power 3")):
            for ranks in (1, 2):
                every = {candidate.label: candidate for candidate in candidates(found, "cuda", ranks)}
                fused, lines = every["gmresfused " + label], as_program_options(every["gmresfused " + label], found, 1e-6)
                self.assertFalse(fused.baseline)
                self.assertEqual(fused.options, every["gmres " + label].options.replace("gmres ", "gmresfused "))
                for option in ("-ksp_type gmresfused", "-ksp_pc_side right", "-mat_type baijcuda"):
                    self.assertIn(option, lines)
                self.assertEqual(f"-pc_bisai_power {power}" in lines, power is not None)
        jacobi = next(candidate for candidate in candidates(found, "cuda", 1) if candidate.label == "gmresfused jacobi")
        self.assertFalse(jacobi.baseline)

    def test_baselines(self):
        """What uses no type of finepc's, not for its matrix either"""
        for A, options in ((blocks(6, 3), "pc_type ilu"), (plane(9, 9), "pc_type jacobi"), (plane(9, 9), "pc_type afsai")):
            for backend in ("host", "cuda"):
                every = [candidate for candidate in candidates(looked_at(A), backend, 1) if options in candidate.options]
                self.assertTrue(every)
                for candidate in every:
                    lines = " ".join(as_program_options(candidate, looked_at(A), 1e-6))
                    ours = any(name in lines for name in ("baijcuda", "afsai", "cgfused", "gmresfused"))
                    self.assertEqual(candidate.baseline, not ours, f"{backend}: {lines}")

    def test_library(self):
        """The options of a winner that uses PETSc's preconditioner and finepc's matrix load the library."""
        found = looked_at(blocks(6, 3))
        for backend, wanted in (("cuda", True), ("host", False)):
            ilu = next(candidate for candidate in candidates(found, backend, 1) if candidate.label == "gmres ilu")
            row = run.Row(ilu.label, backend, ilu.options, "ok", setup_s=1.0, solve_s=1.0, total_s=2.0, again_s=1.0, iterations=3,
                          true_residual=1e-9, baseline=ilu.baseline)
            row.candidate = ilu
            result = session.TryResult("A", found, 1e-8, 1, [row])
            session._judge(result, 1e-8, "/x/libfinepc.so", bench)
            self.assertEqual("-dll_append /x/libfinepc.so" in result.options, wanted, result.options)


    def test_steps_of_afsai(self):
        """afsai is tried with two numbers of steps wherever it is tried, and recommended if both were measured."""
        found = looked_at(plane(9, 9))
        for backend in ("host", "cuda"):
            every = candidates(found, backend, 1)
            adaptive = [candidate for candidate in every if afsai_steps(candidate.options) is not None]
            self.assertEqual([afsai_steps(candidate.options) for candidate in adaptive], [20, 40])
            for only in adaptive:
                self.assertEqual(chosen(every, [only.label])[0], adaptive)
        self.assertIsNone(afsai_steps("-pc_type gamg -mg_levels_pc_type afsai"))
        self.assertEqual([candidate.label for candidate in chosen(every, ["cg jacobi"])[0]], ["cg jacobi"])

        def judged(*totals):
            rows = [run.Row(candidate.label, "host", candidate.options, "ok" if total else "time limit", setup_s=total,
                            solve_s=total, total_s=total, again_s=total, iterations=3, true_residual=1e-9, baseline=False)
                    for candidate, total in zip(candidates(found, "host", 1), totals)]
            for row, candidate in zip(rows, candidates(found, "host", 1)):
                row.candidate = candidate
            result = session.TryResult("A", found, 1e-8, 1, rows)
            session._judge(result, 1e-8, "/x/libfinepc.so", bench)
            return result

        labels = [candidate.label for candidate in candidates(found, "host", 1)]
        first, second = labels.index("cg afsai"), labels.index("cg afsai strong")
        self.assertEqual((first, second), (3, 4))
        both, one, alone = judged(9.0, 9.0, 9.0, 1.0, 2.0), judged(9.0, 8.0, 9.0, 1.0, None), judged(None, None, None, 1.0, None)
        self.assertEqual((both.winner.label, both.notes), ("cg afsai", []))
        self.assertEqual(one.winner.label, labels[1])
        self.assertIsNone(alone.winner)
        for result in (one, alone):
            self.assertIn('"cg afsai" on the host is not recommended, since no other number of steps', result.notes[0])


class Files(Folder):
    def same(self, name, A, b=None):
        found, rhs, label = matrix.load(self.path(name))
        self.assertEqual(abs(found - A).max(), 0)
        self.assertEqual(label, "A")
        if b is None:
            self.assertIsNone(rhs)
        else:
            numpy.testing.assert_array_equal(rhs, b)

    def packed(self, name):
        with open(self.path(name), "rb") as file:
            data = file.read()
        for ending, module in ((".gz", gzip), (".xz", lzma)):
            with module.open(self.path(name + ending), "wb") as to:
                to.write(data)

    def test_formats(self):
        A, b = convection(5), numpy.arange(25.0) + 1
        scipy.io.mmwrite(self.path("A.mtx"), A)
        matrix.write(self.path("A.petsc"), A, b)
        for name in ("A.mtx", "A.petsc"):
            self.packed(name)
        for ending in ("", ".gz", ".xz"):
            self.same("A.mtx" + ending, A)
            self.same("A.petsc" + ending, A, b)
        with open(self.path("A.petsc"), "rb") as file:
            data = file.read()
        with open(self.path("A.petsc"), "wb") as file:
            file.write(data[: -8 - 8 * 25])
        self.same("A.petsc", A)

    def test_wide_indices(self):
        A = plane(3, 4)
        with open(self.path("A.petsc"), "wb") as file:
            matrix.read_mtx.write(file, A, 8)
        self.same("A.petsc", A)

    def test_objects(self):
        dense = numpy.array([[2.0, 1.0], [1.0, 3.0]])
        for A in (dense, sparse.coo_matrix(dense), [[2, 1], [1, 3]]):
            numpy.testing.assert_array_equal(matrix.load(A)[0].toarray(), dense)

    def test_duplicates(self):
        """Entries of the same place are summed, in double precision, and the caller's arrays stay as they are."""
        for kind in (float, numpy.int8):
            data, columns = numpy.array([4, 100, 100, 1, 5], dtype=kind), numpy.array([1, 0, 0, 1, 0], dtype=numpy.int32)
            A = sparse.csr_matrix((data, columns, numpy.array([0, 3, 5])), shape=(2, 2))
            before = data.copy(), columns.copy()
            found = matrix.load(A)[0]
            self.assertEqual((found.nnz, found.toarray().tolist()), (4, [[200.0, 4.0], [5.0, 1.0]]))
            numpy.testing.assert_array_equal(data, before[0])
            numpy.testing.assert_array_equal(columns, before[1])

    def refused(self, why, A, *rhs):
        with self.assertRaisesRegex(TryError, why):
            matrix.load(A, *rhs)

    def test_wrong_files(self):
        def file(name, text):
            with open(self.path(name), "wb") as to:
                to.write(text)
            return self.path(name)

        banner = b"%%MatrixMarket matrix coordinate real general\n"
        self.refused("No such file", self.path("none.mtx"))
        self.refused("begins neither with", file("text.mtx", b"1 2 3\n"))
        self.refused("begins neither with", file("empty.petsc", b""))
        self.refused("says that there are 3", file("short.mtx", banner + b"2 2 3\n1 1 1.0\n2 2 1.0\n"))
        self.refused("must be matrix coordinate, real", file("i.mtx", banner.replace(b"real", b"complex") + b"1 1 1\n1 1 1 1\n"))
        self.refused("line 3 is not a row", file("word.mtx", banner + b"1 1 1\n1 1 one\n"))
        self.refused("[Nn]ot a gzipped file", file("no.mtx.gz", banner))
        self.refused("not supported by decoder", file("no.mtx.xz", banner))
        whole = io.BytesIO()
        matrix.read_mtx.write(whole, plane(3, 3), 4)
        self.refused("ends too early", file("cut.petsc", whole.getvalue()[:-9]))
        wrong = bytearray(whole.getvalue())
        wrong[16 + 36 + 3] = 200  # the first column
        self.refused("a column that the matrix does not have", file("column.petsc", bytes(wrong)))
        self.refused("no vector of PETSc's", file("more.petsc", whole.getvalue() + b"something else"))

    def test_wrong_matrices(self):
        self.refused("2 by 3 is no linear system", numpy.ones((2, 3)))
        self.refused("0 by 0 is no linear system", sparse.csr_matrix((0, 0)))
        self.refused("complex", numpy.eye(2) * 1j)
        self.refused("Row 1, counted from 0, has the entry nan", [[1, 0], [numpy.nan, 1]])
        self.refused("Row 1, counted from 0, has no entry", [[1, 0], [0, 0]])
        self.refused("neither a path nor a matrix", object())

    def test_right_hand_sides(self):
        b = numpy.array([1.0, 2.0])
        numpy.save(self.path("b.npy"), b)
        numpy.savetxt(self.path("b.txt"), b)
        scipy.io.mmwrite(self.path("b.mtx"), b.reshape(2, 1))
        for name in ("b.npy", "b.txt", "b.mtx"):
            numpy.testing.assert_array_equal(matrix.load(numpy.eye(2), self.path(name))[1], b)
        self.refused("must be 2 real numbers", numpy.eye(2), numpy.ones(3))
        self.refused("is 0, and so is the solution", numpy.eye(2), numpy.zeros(2))
        self.refused("not finite", numpy.eye(2), [1, numpy.inf])


class Runs(Folder):
    def solved(self, result, *labels):
        """Every row is what it says, and those of the labels reached the tolerance."""
        rows = {row.label: row for row in result.rows}
        for row in result.rows:
            if row.ok:
                self.assertLessEqual(row.true_residual, 1.05 * result.rtol)
        for label in labels:
            self.assertTrue(rows[label].ok, f"{label}: {rows[label].status} {rows[label].note}")
        self.assertTrue(result.winner.ok)
        self.assertEqual(result.winner.total_s, min(row.total_s for row in result.rows if row.ok))
        return rows

    def test_definite(self):
        rows = self.solved(attempt(plane(20, 20)), "cg jacobi", "cg icc", "cg gamg", "cg afsai", "cg sfsai", "cg cmatch", "cg rrb",
                           "rrbcg rrb", "cg gamg afsai")
        self.assertLess(rows["cg afsai"].iterations, rows["cg jacobi"].iterations)
        self.assertGreater(rows["cg gamg"].memory_bytes, 0)
        self.assertEqual(rows["cg afsai"].warm_runs, run.WARM_RUNS)
        self.assertGreater(rows["cg afsai"].refill_s, 0)

    def test_boundary_rows(self):
        self.solved(attempt(boundary_rows(15), only="afsai,jacobi"), "cg afsai")

    def test_semidefinite(self):
        self.solved(attempt(closed(12)), "cg jacobi", "cg gamg", "cg afsai", "cg cmatch", "cg rrb")
        result = attempt(closed(12), numpy.arange(144.0), only="jacobi")
        self.solved(result, "cg jacobi")
        self.assertIn("its mean was taken off", " ".join(result.notes))

    def test_indefinite(self):
        A = plane(12, 12) - 0.8 * sparse.identity(144)
        self.solved(attempt(A, only="minres,gmres jacobi", rtol=1e-6), "minres jacobi", "minres none")

    def test_nonsymmetric(self):
        self.solved(attempt(convection(15), only="jacobi,ilu,bisai"), "gmres jacobi", "gmres ilu", "gmres bisai",
                    "bcgs bisai power 2")

    def test_blocks(self):
        A = sparse.kron(plane(10, 10), numpy.eye(3)) + sparse.kron(sparse.identity(100), 0.3 * numpy.arange(9).reshape(3, 3) + 4)
        result = attempt(A, only="pbjacobi,ilu,bisai")
        self.assertEqual(result.properties.block_size, 3)
        self.solved(result, "gmres pbjacobi", "gmres ilu", "gmres bisai", "gmres bisai power 2")
        self.assertEqual(attempt(A, only="jacobi", block_size=1).properties.block_size, 1)

    def test_ranks(self):
        result = attempt(plane(16, 16), ranks=2, only="afsai,jacobi,bjacobi")
        self.solved(result, "cg afsai", "cg jacobi", "cg bjacobi icc")

    def test_hidden_indefiniteness(self):
        """A negative eigenvalue that the look at the matrix has not found costs time: what fits indefinite matrices follows."""
        from finepc_try import session
        whole = session.analyse.analyse
        self.addCleanup(setattr, session.analyse, "analyse", whole)
        session.analyse.analyse = lambda A: self.mistaken(whole(A))
        result = attempt(plane(9, 9) - 0.9 * sparse.identity(81), rtol=1e-6, time_limit=1)
        rows = self.solved(result)
        if any(row.ok for label, row in rows.items() if label.startswith("cg ")):
            self.skipTest("cg has solved the system in spite of the negative eigenvalue")
        self.assertIn("minres jacobi", rows)

    @staticmethod
    def mistaken(found):
        found.kind = "spd"
        return found

    def test_missed(self):
        """What the solver takes for converged, and is not, is run again with a smaller tolerance, and else is never the winner."""
        scale = sparse.diags(numpy.logspace(0, 2, 144))
        result = attempt(scale @ (plane(12, 12) - 0.8 * sparse.identity(144)) @ scale, only="minres", time_limit=5)
        rows = self.solved(result)
        self.assertIn("-ksp_rtol", rows["minres jacobi"].note)
        self.assertIn(f"-ksp_rtol {result.rtol * rows['minres jacobi'].candidate.bound:.3g}",
                      "\n".join(as_program_options(rows["minres jacobi"].candidate, result.properties, result.rtol)))
        for row in result.rows:
            self.assertEqual(row.ok, row.true_residual is not None and row.true_residual <= 1.05e-8, row.label)

    def test_nothing_converges(self):
        """A singular matrix and a right-hand side for which there is no solution"""
        A = sparse.block_diag([plane(4, 4), numpy.array([[1.0, 1.0], [1.0, 1.0]])]).tocsr()
        b = numpy.ones(18)
        b[-1] = -1
        result = attempt(A, b, only="jacobi,afsai", time_limit=2)
        self.assertIsNone(result.winner)
        self.assertEqual((result.options, result.advice), ("", []))
        self.assertIn("Nothing reached the tolerance", str(result))

    def test_small(self):
        """One row, a diagonal matrix, and a dense one"""
        self.solved(attempt([[3.0]], time_limit=10), "cg jacobi", "cg afsai")
        for A in (numpy.diag([1.0, 2.0, 3.0, 4.0]), numpy.eye(6) + 0.1):
            self.solved(attempt(A, only="jacobi,afsai,sfsai", time_limit=10), "cg jacobi", "cg afsai")

    def test_same_seed(self):
        first, second = (attempt(plane(9, 9), only="icc") for _ in range(2))
        self.assertEqual(first.rows[0].true_residual, second.rows[0].true_residual)

    def test_options(self):
        for why, options in (("tolerance", {"rtol": 0}), ("ranks", {"ranks": 0}), ("time limit", {"time_limit": 0}),
                             ("backend", {"backend": "gpu"}), ("block size", {"block_size": 7}),
                             ("There is no program", {"bench": "x"}),
                             ("there are cg jacobi", {"only": "nothing"})):
            with self.assertRaisesRegex(TryError, why):
                attempt(plane(4, 4), **options)

    def test_files(self):
        lines = []
        result = attempt(plane(20, 20), only="afsai,rrb", output=self.folder, progress=lines.append)
        with open(result.files["json"], encoding="utf-8") as file:
            written = json.load(file)
        self.assertEqual([row["label"] for row in written["rows"]], [row.label for row in result.rows])
        self.assertEqual(written["winner"]["label"], result.winner.label)
        self.assertIn("[1/", "".join(lines))
        if "plot" in result.files:
            self.assertGreater(os.path.getsize(result.files["plot"]), 10000)
        program = os.path.join(folders.build, "tutorials", "ex1")
        done = subprocess.run([program, "-dim", "2", "-n", "20", "-options_file", result.files["options"], "-options_left",
                               "-ksp_view"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("Converged after", done.stdout)
        self.assertNotIn("not used", done.stdout)
        self.assertIn("type: rrb" if "rrb" in result.winner.label else "type: afsai", done.stdout)


class Trouble(Folder):
    """A candidate that crashes, hangs or says nonsense costs its own row alone: the program is one that does so for one of them."""

    def rows(self, what, **options):
        program = self.script("bench", f"""#!/bin/bash
set=$(cat "$(echo "$@" | sed 's/.*-sets \\([^ ]*\\).*/\\1/')")
case $set in *"-pc_type icc"*) {what} ;; esac
exec {bench} "$@"
""")
        result = attempt(plane(10, 10), only="jacobi,icc,sfsai", bench=program, **options)
        rows = {row.label: row for row in result.rows}
        self.assertTrue(rows["cg jacobi"].ok and rows["cg sfsai"].ok)
        self.assertNotEqual(result.winner.label, "cg icc")
        self.assertIn("cg icc", str(result))
        return rows["cg icc"]

    def test_crash(self):
        row = self.rows("kill -SEGV $$")
        self.assertEqual(row.status, "failed")
        self.assertIn("it crashed (SIGSEGV)", row.note)

    def test_memory(self):
        row = self.rows("kill -KILL $$")
        self.assertEqual(row.status, "killed")
        self.assertIn("memory", row.note)

    def test_error(self):
        row = self.rows("echo 'finepc_bench: out of luck' >&2; exit 1")
        self.assertEqual((row.status, row.note), ("failed", "finepc_bench: out of luck"))

    def test_nonsense(self):
        self.assertEqual(self.rows("echo well; exit 0").status, "failed")

    def test_hang(self):
        grace, run.GRACE = run.GRACE, 1.0
        self.addCleanup(setattr, run, "GRACE", grace)
        begin = time.monotonic()
        row = self.rows(f"sleep 300 & echo $! >{self.path('child')}; wait", time_limit=2)
        self.assertEqual(row.status, "time limit")
        self.assertLess(time.monotonic() - begin, 60)
        with open(self.path("child"), encoding="ascii") as file:
            child = file.read().strip()
        with self.assertRaises(ProcessLookupError):  # what the program started has ended, too
            for _ in range(50):
                os.kill(int(child), 0)
                time.sleep(0.1)

    def test_no_number(self):
        """A true residual that is not finite is null in the JSON of the program, whatever it says of the convergence."""
        for status in ("missed", "ok"):
            row = self.rows(f"""{bench} "$@"; r=$(echo "$@" | sed 's/.*-json \\([^ ]*\\).*/\\1/')
sed -i 's/"true_residual": *[-+.0-9e]*/"true_residual": null/; s/"status": *"[a-z]*"/"status": "{status}"/' $r; exit 0""")
            self.assertEqual(row.status, "failed")
            self.assertIn("true residual is not a finite number", row.note)
            self.assertIsNone(row.true_residual)

    def test_memory_limit(self):
        """A limit that is there already, such as that of ulimit -v, stays where it is less."""
        code = ("import os, resource\nfrom finepc_try import run\nrun.os.path.exists = lambda path: False\n"
                "G = 2**30\nresource.setrlimit(resource.RLIMIT_AS, (60 * G, 70 * G))\n"
                "for available in (100, 20):\n  run._available_bytes = lambda: available * G\n  run._host_limits()\n"
                "  print(*(limit // G for limit in resource.getrlimit(resource.RLIMIT_AS)))\n")
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=100, cwd=self.folder, env=dict(os.environ, PYTHONPATH=folders.source))
        self.assertEqual(done.stdout.splitlines(), ["60 70", "24 70"])

    def test_slow_solver(self):
        """The program itself ends a solve when the time is over."""
        A = plane(150, 150) @ plane(150, 150)
        row = attempt(A, only="jacobi", rtol=1e-13, time_limit=0.3).rows[0]
        self.assertEqual(row.status, "time limit", row.note)

    def test_refusal(self):
        """Types that the matrix is not for become failed rows that say why."""
        saddle = sparse.bmat([[plane(5, 5), sparse.identity(25)], [sparse.identity(25), None]]).tocsr()
        rows = {row.label: row for row in attempt(saddle, time_limit=5, only="ilu,minres").rows}
        self.assertFalse(rows["gmres ilu"].ok)
        self.assertTrue(rows["gmres ilu"].note)
        self.assertTrue(rows["minres jacobi"].ok)

    def test_no_gpu(self):
        smi = self.script("nvidia-smi", "#!/bin/sh\necho 'GPU 0: Some GPU (UUID: x)'\n")
        path = os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", path)
        os.environ["PATH"] = os.path.dirname(smi) + os.pathsep + path
        self.assertEqual(run.gpu_name(), "Some GPU")
        refuses = self.script("bench", f"""#!/bin/bash
case "$*" in *"-backend cuda"*) echo "finepc_bench: no CUDA device found on every rank" >&2; exit 1 ;; esac
exec {bench} "$@"
""")
        lines = []
        result = attempt(plane(6, 6), backend="auto", only="jacobi", bench=refuses, progress=lines.append)
        self.assertEqual([row.backend for row in result.rows], ["host"])
        self.assertIn("no CUDA device found", "".join(lines))
        with self.assertRaisesRegex(TryError, "The GPU cannot be used: .*no CUDA device"):
            attempt(plane(6, 6), backend="cuda", bench=refuses)


class Repeated(unittest.TestCase):
    """Rows that are close are run once more, and the text says how much two runs differ."""

    def judged(self, totals, again):
        rows = []
        for k, total in enumerate(totals):
            row = run.Row(f"c{k}", "host", "", "ok", setup_s=0.0, solve_s=total, total_s=total, again_s=total, iterations=3,
                          true_residual=1e-9, baseline=True)
            row.candidate = mock.Mock(label=f"c{k}", options="", matrix_type="aij", bound=1.0, backend="host")
            rows.append(row)
        result = session.TryResult("A", looked_at(plane(4, 4)), 1e-8, 1, rows)
        times = iter(again)

        class Runner:
            def run(self, candidate, path):
                total = next(times)
                return run.Row(candidate.label, "host", "", "ok", setup_s=0.0, solve_s=total, total_s=total, again_s=total,
                               iterations=3, true_residual=1e-9)

        session._repeat_close(Runner(), "", result, lambda text: None)
        session._judge(result, 1e-8, None, bench)
        return result

    def test_close(self):
        result = self.judged([1.0, 1.05, 2.0], [1.2, 0.9])
        self.assertEqual((result.winner.label, result.winner.total_s, result.runner_up.total_s), ("c1", 0.9, 1.0))
        self.assertIn("either may be the faster one", str(result))
        self.assertAlmostEqual(result.runner_up.spread, 0.2)
        self.assertIn("it stays the faster one", str(self.judged([1.0, 1.05], [1.001, 1.051])))

    def test_apart(self):
        result = self.judged([1.0, 1.2], [])
        self.assertIsNone(result.winner.spread)
        self.assertNotIn("Both were run twice", str(result))


class Points(Folder):
    def test_rigid_body_modes(self):
        """Elasticity of which bench has made the matrix: with the modes multigrid takes fewer iterations."""
        path = self.path("elastic.petsc")
        subprocess.run([bench, "-backend", "host", "-check", "-systems", "elasticity3d:8:1:1", "-bench_mat_view", f"binary:{path}"],
                       check=True, stdout=subprocess.DEVNULL, timeout=100)
        node = numpy.arange(8 * 9 * 9)
        x = numpy.stack([node % 8 + 1, node // 8 % 9, node // 72], axis=1)  # the clamped face x = 0 is no part of the matrix
        numpy.savetxt(self.path("x.txt"), x)
        plain = attempt(path, only="cg gamg", block_size=3)
        modes = attempt(path, only="cg gamg", block_size=3, coordinates=self.path("x.txt"))
        self.assertTrue(plain.winner and modes.winner)
        self.assertLess(modes.winner.iterations, plain.winner.iterations)
        self.assertIn("MatSetNearNullSpace()", str(modes))

    def test_wrong(self):
        with self.assertRaisesRegex(TryError, "There must be 12 points with 3 coordinates each; the shape is 36 by 2"):
            matrix.points(numpy.ones((36, 2)), 36, 3)
        with self.assertRaisesRegex(TryError, "Rigid body modes are for 2 or 3 unknowns"):
            matrix.points(numpy.ones((36, 1)), 36, 1)
        with self.assertRaisesRegex(TryError, "not finite"):
            matrix.points(numpy.full((12, 3), numpy.nan), 36, 3)
        with self.assertRaisesRegex(TryError, "Cannot read"):
            matrix.points(self.path("none.txt"), 36, 3)


class Words(unittest.TestCase):
    def row(self, label, setup, solve, again, refill=None):
        return run.Row(label, "host", "", "ok", setup_s=setup, solve_s=solve, total_s=setup + solve, again_s=again, refill_s=refill,
                       true_residual=1e-9, iterations=3)

    def test_advice(self):
        cheap, strong = self.row("cheap", 0.0, 1.0, 1.0, 0.0), self.row("strong", 4.0, 0.5, 0.5, 0.1)
        self.assertEqual(advice.crossover(cheap, strong), 9)
        self.assertLess(advice.many_solves(strong, 9), advice.many_solves(cheap, 9))
        self.assertGreaterEqual(advice.many_solves(strong, 8), advice.many_solves(cheap, 8))
        said = " ".join(advice.sentences([cheap, strong]))
        self.assertIn('"strong" on the host takes 9 s', said)
        self.assertIn("ahead from 9 on", said)
        self.assertIn('"strong" on the host takes 600 ms a step, 100 ms of them', said)
        self.assertEqual(list(advice.sentences([])), [])

    def test_units(self):
        self.assertEqual([advice.seconds(value) for value in (123.4, 12.34, 0.01234, 1.234e-5, None)],
                         ["123 s", "12.3 s", "12.3 ms", "12.3 us", ""])
        self.assertEqual([report.size(value) for value in (12, 12345, 1.2e9, None)], ["12 B", "12.3 KB", "1.2 GB", ""])


class Program(Folder):
    """The program as users start it"""

    def start(self, *arguments, **variables):
        command = [os.path.join(folders.source, "finepc_try", "finepc-try"), *arguments]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=250, cwd=self.folder,
                              env=dict(os.environ, FINEPC_BENCH=bench, **variables))

    def test_whole(self):
        scipy.io.mmwrite(self.path("plane.mtx"), plane(12, 10), symmetry="symmetric")
        done = self.start("plane.mtx", "--backend", "host", "--only", "afsai,jacobi", "--rtol", "1e-6", "--output", "here")
        self.assertEqual(done.returncode, 0, done.stderr)
        for text in ("a 5-point stencil on a grid of 12 by 10 points", "[1/", "The fastest is", "The next is", "true residual",
                     "right-hand sides with one set-up", "Many time steps"):
            self.assertIn(text, done.stdout)
        self.assertTrue({"plane.json", "plane.opts"} <= set(os.listdir(self.path("here"))))

    def test_list(self):
        """What would be tried, of which nothing is run, and one's own candidate"""
        scipy.io.mmwrite(self.path("A.mtx"), plane(6, 6))
        done = self.start("A.mtx", "--backend", "host", "--list", "--with", "mine: -ksp_type cg -pc_type sor", "--only", "jacobi")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0].split(), ["host", "cg", "jacobi", "-ksp_type", "cg", "-pc_type", "jacobi"])
        self.assertIn("host mine", lines[1])
        self.assertIn("A: 2 candidates, which take at most 10 s", lines[2])
        self.assertNotIn("finepc-try", os.listdir(self.folder))
        wrong = self.start("A.mtx", "--backend", "host", "--list", "--with", "sor")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn('"sor" is not of the form', wrong.stderr)

    def test_nothing_twice(self):
        scipy.io.mmwrite(self.path("A.mtx"), plane(6, 6))
        said = self.start("A.mtx", "--backend", "host", "--only", "jacobi", "--with", "mine: -ksp_type cg -pc_type sor").stdout
        sentences = [line for line in said.splitlines() if line.endswith(".")]
        self.assertIn("The right-hand side is random, from a fixed seed.", sentences)
        self.assertEqual(len(sentences), len(set(sentences)))
        self.assertIn("mine", said)

    def test_page(self):
        """The page has a row for each option, with its default, and the columns of the table."""
        with open(os.path.join(folders.source, "docs", "finepc-try.md"), encoding="utf-8") as file:
            page = file.read()
        said = self.start("--help", COLUMNS="1000").stdout
        for option, default in re.findall(r"^ +(--[a-z-]+) .*?(?:\(default: (.*)\))?$", said, re.M):
            row = re.search(rf"^\| `{option}[ `].*$", page, re.M)
            self.assertTrue(row, f"{option} has no row")
            self.assertIn(default, row.group(0))
        rows = set(re.findall(r"^\| `(--[a-z-]+)", page, re.M))
        self.assertEqual(rows, set(re.findall(r"^ +(--[a-z-]+) ", said, re.M)))
        for heading in report.COLUMNS:
            self.assertIn(heading, page)

    def test_under_mpiexec(self):
        """A program of one rank that mpiexec has started, and that has initialized PETSc where there is petsc4py"""
        code = ("import sys\ntry:\n  from petsc4py import PETSc\nexcept ImportError:\n  pass\nimport numpy, finepc_try\n"
                "A = numpy.diag([2.0, 3.0, 4.0]) + 0.1\n"
                "print(finepc_try.try_matrix(A, only='jacobi', backend='host').winner.label)\n")
        done = subprocess.run(["mpiexec", "-n", "1", sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=100, env=dict(os.environ, FINEPC_BENCH=bench, PYTHONPATH=folders.source))
        self.assertIn("cg jacobi", done.stdout)

    def test_mistakes(self):
        missing = self.start("nothing.mtx")
        self.assertEqual((missing.returncode, missing.stdout), (2, ""))
        self.assertRegex(missing.stderr, "^finepc-try: Cannot read nothing.mtx: .*No such file")
        self.assertEqual(self.start("--ranks", "many", "A.mtx").returncode, 2)
        scipy.io.mmwrite(self.path("A.mtx"), plane(3, 3))
        with open(self.path("file"), "w", encoding="ascii"):
            pass
        for folder in ("file/below", "file"):  # noticed before anything is solved
            unwritable = self.start("A.mtx", "--backend", "host", "--only", "jacobi", "--output", folder)
            self.assertEqual((unwritable.returncode, unwritable.stdout), (2, ""))
            self.assertRegex(unwritable.stderr, f"^finepc-try: Cannot write to {folder}: .*Not a directory")
        with self.assertRaisesRegex(TryError, "Cannot write to .*Not a directory"):
            attempt(plane(3, 3), output=self.path("file/below"))
        self.assertNotIn("finepc-try", os.listdir(self.folder))  # the folder of --output, which is not made in vain

    def told(self):
        """(exit code, what is printed, what of errors) by the program in this process"""
        scipy.io.mmwrite(self.path("A.mtx"), plane(6, 6))
        said, errors = io.StringIO(), io.StringIO()
        with mock.patch.dict(os.environ, FINEPC_BENCH=bench), contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
            code = command.main([self.path("A.mtx"), "--backend", "host", "--only", "jacobi", "--output", self.path("here")])
        return code, said.getvalue(), errors.getvalue()

    def test_trouble_with_a_file(self):
        """It costs that file alone, and is told after the table."""
        broken = mock.patch.object(report, "plot", side_effect=RuntimeError("no fonts"))
        missing = mock.patch.dict(sys.modules, matplotlib=None)
        for trouble, note in ((broken, "A.png was not written: RuntimeError: no fonts."),
                              (missing, "There is no plot, since this Python cannot import")):
            with trouble:
                code, said, errors = self.told()
            self.assertEqual((code, errors), (0, ""))
            self.assertLess(said.index("The fastest is"), said.index(note))
            self.assertEqual(sorted(os.listdir(self.path("here"))), ["A.json", "A.opts"])

    def test_full_disk(self):
        """A file that does not fit is not left half-written, and one of an earlier run stays."""
        result = attempt(plane(6, 6), only="jacobi")
        with open(self.path("matrix.json"), "w", encoding="ascii") as file:
            file.write("earlier")
        before, said = resource.getrlimit(resource.RLIMIT_FSIZE), []
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))  # bytes
        try:
            report.write_files(result, self.folder, said.append)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        self.assertRegex("".join(said), "matrix.json was not written: File too large")
        self.assertIn("matrix.json was not written", str(result))
        self.assertIn("options", result.files)
        self.assertNotIn("json", result.files)
        self.assertFalse([name for name in os.listdir(self.folder) if "part" in name])
        with open(self.path("matrix.json"), encoding="ascii") as file:
            self.assertEqual(file.read(), "earlier")

    def test_trouble_elsewhere(self):
        """An error of the system that has nothing to do with the folder of --output does not name it."""
        full = OSError(28, "No space left on device")
        for trouble, note in ((mock.patch.object(session, "write", side_effect=full), "Cannot write the system .*No space.*TMPDIR"),
                              (mock.patch.object(run.Runner, "_process", side_effect=full), "No space left on device")):
            with trouble:
                code, said, errors = self.told()
            self.assertEqual(code, 2)
            self.assertRegex(errors, f"^finepc-try: .*{note}")
            self.assertNotIn(self.path("here"), errors)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
