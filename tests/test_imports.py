"""Imports point one way, and what is heavy or optional is imported only where it is used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "fedseq"

# Each layer may import itself and what stands above it.
LAYERS = [
    {"errors", "version"},
    {"catalog", "names", "seeds", "files"},
    {"config"},
    {"configfile"},
    {"weights", "augment", "kernels", "stored", "algorithms", "models", "data", "progress", "results"},
    {"examples", "failures", "gate"},
    {"jobs"},
    {"training", "evaluation", "checkpoints"},
    {"chains"},
    {"grouping", "engines"},
    {"federation", "planning", "superclients", "pretraining"},
    {"parts"},
    {"experiment"},
    {"own", "trained", "groupstudy", "flower"},
    {"paper"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
ALONE = {"report": {"results", "config", "configfile", "names", "catalog", "errors", "version", "seeds", "files"}}
OPTIONAL = {"ray": "engines", "flwr": "flower", "pyarrow": "data", "PIL": ""}


def modules():
    return [path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"]


def part(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """First part below fedseq of everything imported at run time, wherever in the file."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    names = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "fedseq":
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedseq."):
            names.add((node.module or "").split(".")[1])
        elif isinstance(node, ast.Import):
            names |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("fedseq.")}
    return names


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    here = part(path)
    for name in imported(path) - {here}:
        if here in ALONE:
            assert name in ALONE[here], f"{here} may not know {name}"
        elif name not in ALONE:
            assert LEVEL[name] <= LEVEL[here], f"{here} imports {name}, which stands below it"


def test_every_module_has_a_layer():
    assert {part(path) for path in modules()} - set(LEVEL) - set(ALONE) == set()


@pytest.mark.parametrize("package", OPTIONAL)
def test_optional_packages_are_imported_where_they_are_used(package):
    for path in modules():
        top_level = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {alias.name for node in top_level if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module or "" for node in top_level if isinstance(node, ast.ImportFrom)}
        assert not any(name.split(".")[0] == package for name in names) or part(path) == OPTIONAL[package], path


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["--version"]])
def test_help_does_not_import_torch(words):
    code = (
        "import sys, fedseq.cli\n"
        f"try: fedseq.cli.main({words!r})\n"
        "except SystemExit: pass\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'matplotlib', 'sklearn')))"
    )
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert asked.returncode == 0, asked.stdout + asked.stderr
