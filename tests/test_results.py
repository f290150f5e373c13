"""Published results: the page and its figures are what the published runs give, byte for byte."""

import importlib
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from fedseq.options.resolve import resolve
from fedseq.runs.reading import Run

ROOT = Path(__file__).parents[1]


def load(name: str) -> ModuleType:
    """A script of benchmarks/, as it is when it is run: its folder is where it finds the others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        return importlib.import_module(name)


@pytest.fixture(params=["results", "natural"])
def script(request: pytest.FixtureRequest) -> ModuleType:
    """Each writes the tables of a page, and draws its figures."""
    return load(request.param)


def test_the_committed_page_is_the_regenerated_one(script: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / script.PAGE.name
    committed = script.PAGE.read_text()
    emptied = re.sub(r"(<!-- begin: (.*) -->\n).*?(<!-- end: \2 -->)", r"\1\3", committed, flags=re.DOTALL)
    assert emptied != committed
    page.write_text(emptied)
    script.write_page(page)
    assert page.read_text() == committed, "run: make results"


def test_the_committed_figures_are_the_regenerated_ones(script: ModuleType, tmp_path: Path) -> None:
    for path in script.draw(tmp_path):
        assert path.read_bytes() == (script.IMAGES / path.name).read_bytes(), "run: make results"


def test_every_published_run_is_on_the_page_and_names_no_machine() -> None:
    results = load("results")
    shown = {run.folder for part in results.PARTS for run in part.runs}
    assert shown == {path.parent for path in results.RESULTS.glob("cifar*/*/config.yaml")}
    for file in results.RESULTS.rglob("*.*"):
        if file.is_file():
            text = file.read_text()
            assert str(Path.home()) not in text
            assert "data_dir: null" in text or "data_dir" not in text


def test_a_rate_is_chosen_by_the_mean_of_the_last_three_evaluations(tmp_path: Path) -> None:
    """By hand: up to round 20 one has (0.1 + 0.3 + 0.5) / 3 = 0.3; the other ended at 15, as if it had diverged."""
    natural = load("natural")
    points = ((5, 0.9), (10, 0.1), (15, 0.3), (20, 0.5))
    lines = [{"round": round_, "accuracy": accuracy} for round_, accuracy in points]
    first = Run(tmp_path, resolve({}), lines, True)
    assert natural.mean_of_last(first, 20) == pytest.approx(0.3)
    assert natural.mean_of_last(replace(first, metrics=lines[:3]), 20) == 0
    assert natural.best({0.1: 0.5, 0.2: 0.6, 0.4: 0.6}) == 0.2
