"""Every interpreter that we start goes through one function, which keeps it from taking modules out of any folder."""

import ast
import re
from pathlib import Path

import pytest

from fedseq.basics import processes

SOURCE = Path(processes.__file__).parents[1]
OURS = Path("basics/processes.py")
# Where the interpreter's path is read for something else than to start it.
PLACES = {Path("flower/children.py"): "Path(sys.executable).parent"}
OTHER_WAYS = re.compile(
    r"os\.(system|popen|spawn\w+|exec[lv]\w*|posix_spawn\w*)|sys\._base_executable|runpy\..*|pty\.spawn"
)


def test_an_interpreter_is_started_with_the_safe_path() -> None:
    command = processes.python("-m", "fedseq")
    assert command[1:] == ["-P", "-m", "fedseq"]


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_there_is_no_other_way(path: Path) -> None:
    """By name of the interpreter, by a shell, by other functions of the system, or by a spawned worker of Python's."""
    here = path.relative_to(SOURCE)
    tree = ast.parse(path.read_text())
    if here != OURS:
        allowed = PLACES.get(here, "")
        found = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        assert found.count("sys.executable") == allowed.count("sys.executable")
        assert allowed in path.read_text()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            assert not OTHER_WAYS.fullmatch(ast.unparse(node)), ast.unparse(node)
        if isinstance(node, ast.Call):
            words = [word.value for word in ast.walk(node) if isinstance(word, ast.Constant)]
            assert not any(keyword.arg == "shell" for keyword in node.keywords), ast.unparse(node)
            if ast.unparse(node.func).endswith(("Popen", "subprocess.run", "check_output", "check_call")):
                assert not any(isinstance(word, str) and re.match(r"(.*/)?python", word) for word in words)
            if ast.unparse(node.func).endswith(("get_context", "set_start_method")):
                assert "spawn" not in words  # it starts an interpreter without -P; a fork takes over what is imported
