"""docs/options.md and docs/api.md from the code: `make reference` writes them, and a test tells when they are old.

They are plain Markdown, so that a repository's pages show them; every option and every name has a heading to link to.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import fedseq
from fedseq import algorithms
from fedseq.options.config import OPTIONS, all_options
from fedseq.options.option import Option, Role

HERE = Path(__file__).parent
BY_HAND = "<!-- Made by docs/reference.py out of the code: change it there, then run `make reference`. -->\n"
SECTIONS = {
    "data": "Data and clients",
    "model": "Model",
    "algorithm": "Algorithm and rounds",
    "local training": "Local training",
    "superclients": "Forming superclients",
    "failures": "Failures, attacks and checks",
    "privacy": "Differential privacy",
    "run": "Seed, evaluation, stopping, machine",
}
RULES = "Parameters of rules"
KINDS = {int: "a whole number", float: "a number", str: "a text"}
EFFECTS = {
    Role.RESULT: "",
    Role.EXTENT: "May change when a run is resumed.",
    Role.PLACE: "May change when a run is resumed; the numbers stay the same.",
}


# --- options ---------------------------------------------------------------------------------------------------------


def options_page() -> str:
    rows = list(all_options().values())
    sections = {title: [row for row in rows if row.section == name and row.name in OPTIONS]
                for name, title in SECTIONS.items()}  # fmt: skip
    sections[RULES] = [row for row in rows if row.name not in OPTIONS]
    assert sum(map(len, sections.values())) == len(rows), "a section without a title"
    intro = """# Options

Every option of a run, to look one up. The command line takes it as `--num-clients 10`, a YAML file as
`num_clients: 10`, and Python as `num_clients=10`. An option that a run would not use is refused.
`fedseq run --help` shows the same list; [which algorithm](which-algorithm.md) and [data](data.md) say which of them
matter.
"""
    parts = [intro, "| task | options |\n|---|---|"]
    for title, found in sections.items():
        links = " ".join(f"[`{row.flag}`](#{_anchor(row.flag)})" for row in found)
        parts.append(f"| [{title}](#{_anchor(title)}) | {links} |")
    parts.append("")
    for title, found in sections.items():
        parts += [f"## {title}\n", *map(_entry, found)]
    return BY_HAND + "\n".join(parts)


def _entry(row: Option) -> str:
    takes = "one of " + ", ".join(f"`{choice}`" for choice in row.choices) if row.choices else KINDS[row.kinds[0]]
    if row.range is not None:
        takes += f", {row.range.words}"
    facts = [f"Takes {takes}."] if takes != KINDS[str] else []
    facts += [f"For {_code(row.when.words)}."] if row.when.words else []
    facts += [f"Default: {_code(row.usual_words)}."] if row.usual_words else ["No default."]
    facts += [EFFECTS[row.role]] if EFFECTS[row.role] else []
    facts += ["Not in a federation of real clients."] if row.simulated else []
    return f"### `{row.flag}`\n\n{_sentence(row.help)}\n\n{' '.join(facts)}\n"


def _sentence(text: str) -> str:
    return f"{_code(text[0].upper() + text[1:])}."


def _code(text: str) -> str:
    """Flags and values with a colon in words, as code."""
    words = (f"`{word}`" if word.startswith("--") else word for word in text.split(" "))
    return " ".join(words).replace(",`", "`,").replace("<", r"\<").replace("*", r"\*").replace("[", r"\[")


def _anchor(heading: str) -> str:
    """As GitHub and MyST make it."""
    return "".join(letter for letter in heading.lower().replace(" ", "-") if letter.isalnum() or letter in "-_")


# --- the Python API --------------------------------------------------------------------------------------------------


def api_page() -> str:
    parts = ["""# Python API

Every public function and class, for whoever calls FedSeq from Python. All of it is typed, and `dir(fedseq)` lists it.
What functions take as `**options` has [a page of its own](options.md).
"""]  # fmt: skip
    parts += ["## Run an experiment\n", _function("fedseq.run", fedseq.run), _function("fedseq.resume", fedseq.resume)]
    parts += ["## Bring your own\n", _function("fedseq.federate", fedseq.federate)]
    parts += ["## Look at a run\n", _function("fedseq.read_run", fedseq.read_run), *_class("fedseq.Run", fedseq.Run)]
    parts += [
        _function("fedseq.load_model", fedseq.load_model),
        *_class("fedseq.Config", fedseq.Config, only="options"),
    ]
    parts += ["""## Algorithms

[The pages of the algorithms](algorithms/README.md) have their formulas; [your own algorithm](own-algorithm.md) says
what the functions of a record do.
"""]  # fmt: skip
    for name in ("Algorithm", "Hop", "Setting"):
        parts += _class(f"fedseq.{name}", getattr(fedseq, name))
    made = [name for name in algorithms.__all__ if name[0].islower()]
    parts += [_function(f"fedseq.algorithms.{name}", getattr(algorithms, name)) for name in made]
    parts += ["## Errors\n", *_class("fedseq.FedSeqError", fedseq.FedSeqError)]
    return BY_HAND + "\n".join(parts)


def _function(name: str, function: Callable[..., Any]) -> str:
    return f"### `{name}`\n\n```python\n{_signature(function)}\n```\n\n{inspect.getdoc(function)}\n"


def _class(name: str, kind: type, only: str = "") -> Iterator[str]:
    """Its fields as in the source, with their comments, and its public methods; or one of these."""
    yield f"### `{name}`\n\n{inspect.getdoc(kind)}\n"
    source = textwrap.dedent(inspect.getsource(kind))
    tree = ast.parse(source).body[0]
    assert isinstance(tree, ast.ClassDef)
    named = [node for node in tree.body if isinstance(node, ast.AnnAssign)]
    if named and not only:
        lines = source.splitlines()[named[0].lineno - 1 : named[-1].end_lineno]
        yield f"```python\n{textwrap.dedent(chr(10).join(lines))}\n```\n"
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("_") or only not in ("", node.name):
            continue
        if told := ast.get_docstring(node):
            marks = [ast.unparse(mark) for mark in node.decorator_list]
            held = any("property" in mark for mark in marks)
            shown = f"{node.name}: {_returns(node)}" if held else _header(node)
            yield f"#### `{kind.__name__}.{node.name}`\n\n```python\n{shown}\n```\n\n{told}\n"


def _signature(function: Callable[..., Any]) -> str:
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, ast.FunctionDef)
    return _header(node)


def _header(node: ast.FunctionDef) -> str:
    """The name and the arguments, without `self`; an argument a line where one line would be long."""
    given = node.args
    plain = [argument for argument in given.args if argument.arg != "self"]
    defaults = [*[None] * (len(plain) - len(given.defaults)), *given.defaults]
    rows = [_argument(one, default) for one, default in zip(plain, defaults, strict=True)]
    if given.vararg or given.kwonlyargs:
        rows.append(f"*{_argument(given.vararg)}" if given.vararg else "*")
    rows += [_argument(one, default) for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    if given.kwarg:
        rows.append(f"**{_argument(given.kwarg)}")
    returns = f" -> {_returns(node)}" if node.returns else ""
    line = f"{node.name}({', '.join(rows)}){returns}"
    return line if len(line) <= 100 else f"{node.name}(\n" + "".join(f"    {row},\n" for row in rows) + f"){returns}"


def _returns(node: ast.FunctionDef) -> str:
    return ast.unparse(node.returns).strip("'") if node.returns else ""


def _argument(one: ast.arg, default: ast.expr | None = None) -> str:
    annotated = f"{one.arg}: {ast.unparse(one.annotation)}" if one.annotation else one.arg
    equals = " = " if one.annotation else "="
    return annotated + (f"{equals}{ast.unparse(default)}".replace("'", '"') if default else "")


PAGES: Mapping[str, Callable[[], str]] = {"options.md": options_page, "api.md": api_page}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (HERE / name).write_text(page())
