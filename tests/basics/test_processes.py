"""Interpreters that we start take no module from the folder that they are started in, which may be anybody's."""

import subprocess
import sys
from pathlib import Path

import pytest

import fedseq

TRACE = "import pathlib\npathlib.Path('RAN').touch()\nraise SystemExit(3)\n"
OWN_MODEL = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, shape, num_classes):
        super().__init__(nn.Flatten(), nn.Linear(64, num_classes))
"""
RUN = ["--dataset", "digits", "--grouping", "random", "--rounds", "1"]


def test_one_function_starts_them_all() -> None:
    lines = {
        (file.name, line.strip())
        for file in Path(fedseq.__file__).parent.rglob("*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if "sys.executable" in line and "Path(sys.executable).parent" not in line
    }
    assert lines == {("processes.py", 'return [sys.executable, "-P", *words]')}


def fedseq_here(*words: str) -> None:
    done = subprocess.run([sys.executable, "-P", "-m", "fedseq", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def plant() -> None:
    """Under names that fedseq imports, sooner or later."""
    Path("fedseq").mkdir()
    for name in ("fedseq/__init__.py", "json.py", "torch.py", "numpy.py"):
        Path(name).write_text(TRACE)


@pytest.mark.slow
def test_a_sweep_in_a_folder_from_elsewhere_runs_nothing_of_it() -> None:
    plant()
    fedseq_here("sweep", *RUN, "--out", "sweep")
    assert not Path("RAN").exists()


@pytest.mark.slow
def test_a_run_on_ray_in_a_folder_from_elsewhere_runs_nothing_of_it() -> None:
    pytest.importorskip("ray")
    plant()
    fedseq_here("run", *RUN, "--engine", "ray", "--workers", "1", "--out", "run")
    assert not Path("RAN").exists()


@pytest.mark.slow
def test_a_sweep_finds_a_model_in_the_folder_where_it_is_named() -> None:
    Path("mynet.py").write_text(OWN_MODEL)
    fedseq_here("sweep", *RUN, "--model", "mynet:Net", "--out", "sweep")
