"""Options as text: flags, YAML files and presets, read and written. Nothing in a file is executed.

A file of options may name code: a user's own model or rule, or a Ray cluster, whose answers are code too. Its author
would decide what runs here, so such a name counts only if the user gives it now, or trusts the file.
"""

import math
import re
import reprlib
import types
from collections.abc import Collection, Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any

import yaml

from fedseq.basics.errors import FedSeqError, unknown
from fedseq.basics.files import open_plain
from fedseq.options.config import Config, all_options
from fedseq.options.option import Range, flag
from fedseq.options.tables import TRACKERS

_PRESETS = files("fedseq.options") / "presets"
_KIND_NAMES = {int: "a whole number", float: "a number", str: "a text"}
_LONGEST = 64_000  # bytes of a config file; one with every option has 2000
_MOST_DIGITS = 300
_MOST = {int: 2**63 - 1, float: 1e38}  # which weights and files can hold
_SCIENTIFIC = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")
_DEEPEST = 10  # nested lists, which only a user's own rule can have a use for


class _Loader(yaml.SafeLoader):
    """Refuses names given twice, numbers of absurd length, and aliases, by which a few lines are billions of values."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias (*name), which options do not need")
        return super().compose_node(parent, index)

    def fetch_flow_collection_start(self, token: Any) -> None:
        if self.flow_level >= _DEEPEST:  # deep nesting takes long to parse
            raise yaml.YAMLError("lists in lists in lists")
        super().fetch_flow_collection_start(token)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        names = [str(key.value).replace("-", "_") for key, _ in node.value]
        if twice := {name for name in names if names.count(name) > 1}:
            raise yaml.YAMLError(f"{min(twice)} is given twice")
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: Any) -> int:
        if len(node.value) > _MOST_DIGITS:  # Python's own refusal is hard to understand
            raise yaml.YAMLError("a number with hundreds of digits")
        return super().construct_yaml_int(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def coerce(name: str, value: Any) -> Any:
    """The value of an option from a YAML file or a flag's text, in the option's type; None if it was not given."""
    if value is None or (isinstance(value, str) and value == "null"):
        return None
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a number of NumPy's or PyTorch's types
        value = value.item()
    if "." in name:  # a parameter of a user's own rule, read as YAML
        try:
            return _frozen(_load(value) if isinstance(value, str) else value)
        except (yaml.YAMLError, RecursionError, ValueError, TypeError):
            raise FedSeqError(
                f"the value of {name!r} cannot be read: {reprlib.repr(value)}. Give a number, a text, or a list."
            ) from None
    everything = all_options()
    if name not in everything:
        raise unknown("option", name.replace("_", "-"), (known.replace("_", "-") for known in everything))
    if value == "":
        raise FedSeqError(f"{flag(name)} is empty. Give it a value, or leave it out.")
    kind = next(kind for kind in everything[name].kinds if kind is not types.NoneType)
    converted = _convert(kind, value)
    if converted is None or "\0" in str(converted):
        raise FedSeqError(f"{flag(name)} takes {_KIND_NAMES[kind]}, not {reprlib.repr(value)}.")
    if kind in _MOST and _MOST[kind] < abs(converted) < math.inf:
        raise FedSeqError(f"{flag(name)} takes numbers up to {_MOST[kind]:.2g}, not {reprlib.repr(value)}.")
    return converted


def _frozen(value: Any) -> Any:
    """Lists as tuples, so that configs can be hashed; 1e-5 as a number, which YAML takes for text."""
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    hash(value)  # raises TypeError for a mapping
    return float(value) if isinstance(value, str) and _SCIENTIFIC.fullmatch(value) else value


def _convert(kind: type, value: Any) -> Any:
    if kind is str:
        return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    if kind is float:
        return None if math.isnan(number) else number
    try:
        return int(value) if number.is_integer() else None
    except ValueError:  # a text such as 1e3
        return None


def read_number(written: str, text: str, range: Range, kind: type = float) -> Any:
    """The number that a flag was given which is no option of a run."""
    number = _convert(kind, text)
    if number is None or not range.holds(number):
        raise FedSeqError(f"{written} must be {range.words}, not {text}.")
    return number


def own_text(value: Any) -> str:
    """A parameter of a user's own rule as one line of YAML, which `coerce` reads again."""
    return yaml.safe_dump([value], default_flow_style=True, width=math.inf)[1:-2]  # without the list's brackets


def read_yaml(path: Path) -> dict[str, Any]:
    """The options in a YAML file, by name; nothing in the file is executed."""
    try:
        with open_plain(path) as file:
            content = file.read(_LONGEST + 1)
        if len(content) > _LONGEST:
            raise FedSeqError(f"{path} has more than {_LONGEST} bytes, too many for a file of options.")
        values = _load(content.decode("utf-8"))
    except FileNotFoundError:
        raise FedSeqError(
            f"there is no config file {path}. Write one with: fedseq run --print-config > {path}"
        ) from None
    except OSError as error:
        raise FedSeqError(f"cannot read config file {path}: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise FedSeqError(f"cannot read config file {path}: {error}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise FedSeqError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise FedSeqError(f"{path} must hold 'option: value' lines. See: fedseq run --print-config")
    return values


def _load(text: str) -> Any:
    return yaml.load(text, _Loader)


def presets() -> dict[str, str]:
    """The presets by name, each with its description: the first line of its file."""
    texts = {file.name.removesuffix(".yaml"): file.read_text("utf-8") for file in _PRESETS.iterdir()}
    return {name: text.partition("\n")[0].lstrip("# ") for name, text in sorted(texts.items())}


def read_preset(name: str) -> dict[str, Any]:
    """The options of a preset, by name."""
    if name not in presets():
        raise unknown("preset", name, presets())
    options: dict[str, Any] = yaml.safe_load(_PRESETS.joinpath(f"{name}.yaml").read_text("utf-8"))
    return options


def to_yaml(config: Config) -> str:
    """The options that the run uses, by section, readable by `fedseq run FILE`."""
    everything, used = all_options(), config.options()
    blocks = []
    for section in dict.fromkeys(row.section for row in everything.values()):
        named = [name for name in used if (everything[name].section if name in everything else "algorithm") == section]
        if named:
            blocks.append(f"# {section}\n" + yaml.safe_dump({name: used[name] for name in named}, sort_keys=False))
    return "\n".join(blocks)


def without_places(config: Config) -> Config:
    """With the names of files only: what is shown to others does not tell where they lie on this computer."""
    kind, colon, path = config.dataset.partition(":")
    named = ",".join(PurePath(part).name for part in path.split(","))
    weights, data = (value and PurePath(value).name for value in (config.init_weights, config.data_dir))
    return replace(config, dataset=f"{kind}{colon}{named}", init_weights=weights, data_dir=data)


def names_code(options: Mapping[str, Any]) -> list[str]:
    """The names of the options whose values name code, or places outside of this machine."""
    own = [name for name in ("model", "algorithm") if ":" in str(options.get(name, ""))]
    own += ["ray_address"] if options.get("ray_address") is not None else []
    trackers = str(options.get("track", "")).split("+")
    return own + ["track"] * any(row.reaches_out for name, row in TRACKERS.items() if name in trackers)


def refuse_code(options: Mapping[str, Any], where: str | Path, given: Collection[str], trust: bool) -> None:
    """Refuse options from a file that name code, unless the user gave them now, or trusts the file."""
    named = [name for name in names_code(options) if name not in given]
    if named and not trust:
        asked = " ".join(f"{flag(name)} {options[name]}"[:200] for name in named)
        raise FedSeqError(
            f"{where} asks for code that is not part of fedseq, or for another machine: {asked}. None of it was used. "
            "If you wrote it, or trust its author, add --trust to the command (in Python: trust=True)."
        )
