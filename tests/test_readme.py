"""What the README shows can be typed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.slow
def test_the_python_example_runs_and_runs_again():
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    Path("example.py").write_text(example)
    for _ in range(2):
        asked = subprocess.run([sys.executable, "example.py"], capture_output=True, text=True)
        assert asked.returncode == 0, asked.stderr
    assert len(Path("runs/own/metrics.jsonl").read_text().splitlines()) == 20  # continued, and there was no more to do
