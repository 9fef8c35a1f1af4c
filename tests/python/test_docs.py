"""The program that docs/python.md shows runs as it is."""
import os
import re
import subprocess
import sys

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "python.md")


def test_blocks_of_the_page():
    with open(PAGE, encoding="utf-8") as f:
        blocks = re.findall(r"^```python\n(.*?)^```$", f.read(), re.M | re.S)
    assert len(blocks) > 4
    result = subprocess.run([sys.executable, "-c", "\n".join(blocks)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            timeout=100)
    assert result.returncode == 0, result.stdout
    assert re.search(r"^\d+ iterations, residual \d\.\d+e-\d+$", result.stdout, re.M), result.stdout
    assert re.search(r"^\[2500, .*\d\] rows on the levels$", result.stdout, re.M), result.stdout
