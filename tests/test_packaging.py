"""What an installed fedseq needs is declared, and what it reads is packed."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

import fedseq

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fedseq"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOR_DEVELOPERS = {"dev", "all", "docs"}


def normal(requirement: str) -> str:
    """A distribution's name as indexes compare it, without versions and extras."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()  # type: ignore[index]


def imported(path: Path) -> set[str]:
    """Packages of others, wherever in the file they are imported."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module or "")
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("optional"):  # optional("pyarrow.parquet")
            names |= {
                word.value for word in node.args if isinstance(word, ast.Constant) and isinstance(word.value, str)
            }
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"fedseq"}


def test_every_import_is_declared():
    extras = PYPROJECT["project"]["optional-dependencies"]
    given = [extras[extra] for extra in extras.keys() - FOR_DEVELOPERS]
    declared = {normal(text) for texts in [PYPROJECT["project"]["dependencies"], *given] for text in texts}
    owners = packages_distributions()
    for path in SOURCE.rglob("*.py"):
        for name in imported(path):
            if name not in owners:
                pytest.skip(f"{name} is not installed, so nobody knows whose it is")
            assert declared & {normal(owner) for owner in owners[name]}, f"{path} imports {name}, which is not declared"


def test_every_declared_package_is_pinned():
    pinned = {normal(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    lists = [PYPROJECT["project"]["dependencies"], *PYPROJECT["project"]["optional-dependencies"].values()]
    assert {normal(text) for texts in lists for text in texts} - {"fedseq"} <= pinned


def test_a_wheel_holds_every_file_that_is_not_python():
    packed = {
        path for pattern in PYPROJECT["tool"]["setuptools"]["package-data"]["fedseq"] for path in SOURCE.glob(pattern)
    }
    there = {path for path in SOURCE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert there == packed


def test_the_citation_names_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == fedseq.__version__
    assert citation["license"] == PYPROJECT["project"]["license"]
