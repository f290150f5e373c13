"""Published results: the page and its figures are what the published runs give, byte for byte."""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def results() -> ModuleType:
    specification = importlib.util.spec_from_file_location("published_results", ROOT / "benchmarks" / "results.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module  # where dataclasses look for it
    specification.loader.exec_module(module)
    return module


def test_the_committed_page_is_the_regenerated_one(results: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "results.md"
    committed = results.PAGE.read_text()
    emptied = re.sub(r"(<!-- begin: (.*) -->\n).*?(<!-- end: \2 -->)", r"\1\3", committed, flags=re.DOTALL)
    assert emptied != committed
    page.write_text(emptied)
    results.write_page(page)
    assert page.read_text() == results.PAGE.read_text(), "run: make results"


def test_the_committed_figures_are_the_regenerated_ones(results: ModuleType, tmp_path: Path) -> None:
    for path in results.draw(tmp_path):
        assert path.read_bytes() == (results.IMAGES / path.name).read_bytes(), "run: make results"


def test_every_published_run_is_on_the_page_and_names_no_machine(results: ModuleType) -> None:
    shown = {run.folder for part in results.PARTS for run in part.runs}
    assert shown == {path.parent for path in results.RESULTS.glob("cifar*/*/config.yaml")}
    for file in results.RESULTS.rglob("*.*"):
        if file.is_file():
            text = file.read_text()
            assert str(Path.home()) not in text
            assert "data_dir: null" in text or "data_dir" not in text
