"""What headline reads of a page, what it says of a command that fails, and how README's table follows from results.

Usage: headline_test.py --build FOLDER
"""
import argparse
import contextlib
import importlib.machinery
import importlib.util
import io
import os
import sys
import tempfile
import unittest
import unittest.mock

import keep

HERE = os.path.dirname(os.path.abspath(__file__))
loader = importlib.machinery.SourceFileLoader("headline", f"{HERE}/headline")
headline = importlib.util.module_from_spec(importlib.util.spec_from_loader("headline", loader))
sys.modules["headline"] = headline
sys.dont_write_bytecode = True
loader.exec_module(headline)

PAGE = """# A page

Take `-ksp_type cgfused -pc_type cmatch`, where `-pc_cmatch_power 2` or `-pc_type gamg` are no commands.

```sh
cmake --build build   # a comment
mpiexec -n 2 ./your_program -dll_append $PWD/build/lib/libfinepc.so -mat_type aijcusparse \\
  -vec_type cuda -pc_type afsai
export PETSC_OPTIONS="${PETSC_OPTIONS:-} -dm_mat_type aijcusparse -pc_type sfsai -dll_append /path/libfinepc.so"
```

```sh
-ksp_type gmresfused
-pc_type bisai -pc_bisai_power 2
```

```python
options = {"ksp_type": "cg", "pc_type": "sfsai", "pc_sfsai_power": 2}
```

```
what a program has printed
```
"""
README = """| problem | finepc | other |
| :-- | :-- | :-- |
| SPE10, reservoir | 99 ms, `cmatch` (1) | 5 ms |
| another, which nobody measures here | 7 ms | 8 ms |

| SPE10 | in a table without the column |
"""
TABLE = """# one day
readme\tproblem\tfinepc\tothers
1\tSPE10, reservoir\t99 `cmatch` (1)\t5
0\tanother\t7\t8
"""
MEASURED = (("SPE10", "file:spe10.petsc", "-ksp_type cgfused -pc_type cmatch"),)  # rows of headline's own table
RESULT = """# finepc_bench: backend host, a machine, 1 rank, PETSc 3.26.1, commit 0, 2026-01-01T00:00:00Z
system,set,ksp_type,pc_type,status,total_s,iterations
spe10,cgfused-cmatch,cgfused,cmatch,ok,0.01849,26
"""


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def file(self, name, text):
        path = f"{self.folder.name}/{name}"
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def of(self, text, name="page.md"):
        return headline.of_page(self.file(name, text), name)

    def test_page(self):
        found = {command.place: command for command in self.of(PAGE)}
        self.assertEqual(sorted(found), [f"page.md:{line}" for line in (13, 18, 3, 6, 7, 9)])
        self.assertEqual(found["page.md:3"].words, "-ksp_type cgfused -pc_type cmatch".split())
        self.assertTrue(found["page.md:6"].why_not)
        ranks = found["page.md:7"]
        self.assertEqual((ranks.program, ranks.ranks), ("your_program", 2))
        self.assertEqual(headline.host_form(ranks.words), "-dll_append $PWD/build/lib/libfinepc.so -pc_type afsai".split())
        self.assertTrue(found["page.md:9"].exported)
        self.assertIn("-pc_type sfsai", " ".join(found["page.md:9"].words))
        self.assertEqual(found["page.md:13"].text, "-ksp_type gmresfused -pc_type bisai -pc_bisai_power 2")
        self.assertEqual(found["page.md:18"].text, "-ksp_type cg -pc_type sfsai -pc_sfsai_power 2")
        self.assertTrue(all(command.known for command in found.values()))

    def test_line_that_nobody_knows(self):
        command, = self.of("```sh\nrsync here there\n```\n")
        self.assertFalse(command.known)

    def test_option_file(self):
        command, = self.of("# For\n# run: ex3 -steps 2\n-mat_type aijcusparse\n-vec_type cuda\n-pc_type sfsai\n", "gpu_x.opts")
        self.assertEqual((command.program, headline.host_form(command.words)), ("ex3", "-steps 2 -pc_type sfsai".split()))

    def test_runs(self):
        runner = headline.Runner(arguments.build, True, "mpiexec")
        good, unused, bad = (self.of(f"`-ksp_type cgfused -pc_type jacobi {more}`\n")[0]
                             for more in ("-vec_type cuda", "-pc_afsai_max_steps 3", "-ksp_max_it 2"))
        why, iterations = runner.run(good)
        self.assertEqual(why, "")
        self.assertGreater(int(iterations), 2)
        self.assertIn("not used: -pc_afsai_max_steps", runner.run(unused)[0])
        self.assertIn("DIVERGED_ITS", runner.run(bad)[0])

    def test_table(self):
        path = self.file("results.csv", RESULT)
        results = keep.read(path)
        after = headline.filled(README, results, True)
        self.assertEqual(after, README.replace("99 ms, `cmatch` (1)", "18.5 ms, `cmatch` (26)"))
        table = TABLE.replace("99 `cmatch` (1)", "18.5 `cmatch` (26)")
        self.assertEqual(headline.filled(TABLE, results, False), table)
        readme = self.file("README.md", README)
        kept = self.file("table.tsv", TABLE)

        def call(*words):
            with contextlib.redirect_stdout(io.StringIO()):
                return headline.main([*words, "--readme", readme, "--table", kept, "--output", path[:-4]])
        with unittest.mock.patch.object(headline, "TABLE", MEASURED):
            self.assertEqual([call("--check"), call("--fill"), call("--check")], [1, 0, 0])
        absent = ("another", "poisson3d7:5", "-ksp_type cgfused -pc_type cmatch")
        with unittest.mock.patch.object(headline, "TABLE", (*MEASURED, absent)):  # a row of which there is no result
            self.assertEqual([call("--check"), call("--fill")], [1, 0])
        for path, text in ((readme, after), (kept, table)):
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    arguments, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
