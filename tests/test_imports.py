"""Imports point one way, and what is heavy or optional is imported only where it is used."""

import ast
import graphlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "fedseq"

CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"
# Each package may import itself and what stands above it in the list of CONTRIBUTING.md.
ORDER = re.findall(r"^    (\w+)/ ", CONTRIBUTING.read_text().split("## Where things are")[1].split("\n## ")[0], re.M)
LEVEL = {name: level for level, name in enumerate(ORDER)}
REPORT_KNOWS = ("basics.", "options.", "simulation.", "runs.folder", "runs.reading")
OPTIONAL = {
    "ray": "engines", "wandb": "tracking", "mlflow": "tracking", "flwr": "flower", "pyarrow": "data", "PIL": "",
    "onnx": "", "onnxruntime": "",
}  # fmt: skip


def modules():
    return [path for path in SOURCE.rglob("*.py") if path.parent != SOURCE]


def part(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Modules of fedseq that are imported at run time, wherever in the file, without "fedseq."."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    names: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fedseq":
            names |= {f"{node.module}.{alias.name}".removeprefix("fedseq.") for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name.removeprefix("fedseq.") for alias in node.names if alias.name.startswith("fedseq.")}
    return names - {"__version__"}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    here = part(path)
    for name in imported(path):
        package = name.split(".")[0]
        assert LEVEL[package] <= LEVEL[here], f"{here} imports {name}, which stands below it"
        if here == "report" and package != "report":
            assert name.startswith(REPORT_KNOWS), f"report may not know {name}"


def test_no_modules_import_each_other_in_a_circle():
    """Also not through a third, nor from within a function: each module can be read before those that use it."""
    files = {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path for path in modules()
    }
    uses = {
        module: {name if name in files else name.rpartition(".")[0] for name in imported(path)} & set(files) - {module}
        for module, path in files.items()
    }
    graphlib.TopologicalSorter(uses).prepare()  # raises CycleError, which names them


def test_the_list_is_complete_and_every_entry_exists():
    assert {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"} == set(ORDER)
    assert {path.name for path in SOURCE.glob("*.py")} == {"__init__.py", "__main__.py"}


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


def test_no_two_classes_have_one_name():
    where: dict[str, Path] = {}
    for path in modules():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                assert where.setdefault(node.name, path) == path, f"{node.name} in {where[node.name]} and in {path}"
