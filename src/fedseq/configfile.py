"""Reading options from flags and YAML files, and writing them down. Nothing in a file is executed."""

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fedseq.config import FIELDS, Config, flag, sections
from fedseq.errors import FedSeqError, unknown

_TYPES = typing.get_type_hints(Config)


def option_types(name: str) -> tuple[type, ...]:
    """What an option may be: its type, and None where it has a default that depends on others."""
    return typing.get_args(_TYPES[name]) or (_TYPES[name],)


def coerce(name: str, value: Any) -> Any:
    """The value of an option from a YAML file or a flag's text, in the field's type."""
    if name not in FIELDS:
        raise unknown("option", name.replace("_", "-"), (field.replace("_", "-") for field in FIELDS))
    kinds = option_types(name)
    if value in (None, "null") and types.NoneType in kinds:
        return None
    for kind in (int, float, bool, str):
        if kind in kinds:
            converted = _convert(kind, value)
            if converted is not None:
                return converted
            raise FedSeqError(f"{flag(name)} takes {_KIND_NAMES[kind]}, not {value!r}.")
    raise AssertionError(f"field {name} has a type that no text can be read as")


_KIND_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def _convert(kind: type, value: Any) -> Any:
    if kind is str:
        return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
    if kind is bool:
        return {"true": True, "false": False}.get(str(value).lower())
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    if kind is float:
        return None if math.isnan(number) else number
    try:
        return int(value) if isinstance(value, str | int) else (int(value) if number.is_integer() else None)
    except (ValueError, OverflowError):
        return None


def from_mapping(values: Mapping[str, Any], base: Config | None = None) -> Config:
    known = {name.replace("-", "_"): value for name, value in values.items()}
    return dataclasses.replace(base or Config(), **{name: coerce(name, value) for name, value in known.items()})


def read_yaml(path: Path) -> dict[str, Any]:
    """The options in a YAML file, by name; nothing in the file is executed."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FedSeqError(
            f"there is no config file {path}. Write one with: fedseq run --print-config > {path}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise FedSeqError(f"can't read config file {path}: {error}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise FedSeqError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if values is None:
        return {}
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise FedSeqError(f"{path} must hold 'option: value' lines. See: fedseq run --print-config")
    return values


def to_yaml(config: Config) -> str:
    """Options by section, readable by `fedseq run FILE`."""
    lines = []
    for section in sections():
        lines.append(f"# {section}")
        values = {name: getattr(config, name) for name in FIELDS if FIELDS[name].metadata["section"] == section}
        lines.append(yaml.safe_dump(values, sort_keys=False))
    return "\n".join(lines)
