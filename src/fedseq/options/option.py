"""What an option carries: its default, range, choices, meaning, who uses it, and what it changes.

Everything that has to know these things (help, checks, YAML, what may change on resume, what makes two runs
comparable) reads them here, so that a new option is one line in config.py, or one in the row of its rule.
"""

import dataclasses
import math
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any


@dataclass(frozen=True)
class Range:
    holds: Callable[[Any], bool]
    words: str


POSITIVE = Range(lambda value: value > 0 and math.isfinite(value), "greater than 0")
AT_LEAST_0 = Range(lambda value: value >= 0 and math.isfinite(value), "0 or more")
AT_LEAST_1 = Range(lambda value: value >= 1, "1 or more")
SHARE = Range(lambda value: 0 < value <= 1, "greater than 0 and at most 1")
FROM_0_TO_1 = Range(lambda value: 0 <= value <= 1, "from 0 to 1")
BELOW_1 = Range(lambda value: 0 <= value < 1, "at least 0 and less than 1")


class Role(Enum):
    """What changes with the option's value."""

    RESULT = "changes what comes out"  # a run cannot be continued with another value
    EXTENT = "how far the run goes"  # may change when a run is continued
    PLACE = "only where and how it is computed"  # may change too, and the numbers stay the same


@dataclass(frozen=True)
class Use:
    """Which runs read an option: in words for people, and as a condition on the options of a run."""

    words: str
    holds: Callable[[Any], bool]


ALWAYS = Use("", lambda options: True)


NEVER_OPEN = object()  # no value equals it


@dataclass(frozen=True)
class Option:
    name: str
    kinds: tuple[type, ...]  # what it may be; NoneType where it may be absent
    section: str
    default: Any  # a value, or a function of the options before it
    help: str
    range: Range | None = None
    choices: Iterable[str] | None = None  # names of a table
    use: Use = ALWAYS
    role: Role = Role.RESULT
    simulated: bool = False  # means nothing in a federation of real clients
    usual: str = ""  # a default that depends on others, in words
    open: Any = NEVER_OPEN  # a value that leaves the choice to the run's beginning, where data and machine are known

    @property
    def flag(self) -> str:
        return flag(self.name)

    def default_for(self, options: Any) -> Any:
        return self.default(options) if callable(self.default) else self.default

    def help_text(self) -> str:
        usual = self.usual or ("" if callable(self.default) or self.default is None else f"{self.default}")
        asides = [f"for {self.use.words}" if self.use.words else "", f"default: {usual}" if usual else ""]
        aside = "; ".join(filter(None, asides))
        return f"{self.help} ({aside})" if aside else self.help


def option(section: str, default: Any, help: str, **carried: Any) -> Any:
    """A field of a record of options; `carried` are fields of Option."""
    return dataclasses.field(metadata={"section": section, "default": default, "help": help, **carried})


def options_of(record: type) -> dict[str, Option]:
    """The fields of a record that were made by `option`, by name."""
    hints, found = typing.get_type_hints(record), {}
    for field in dataclasses.fields(record):
        if field.metadata:
            kind = hints[field.name]
            found[field.name] = Option(field.name, typing.get_args(kind) or (kind,), **field.metadata)
    return found


def brief(value: Any) -> str:
    """A value as a person would write it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def flag(name: str) -> str:
    if "." in name:  # of a rule of the user's own
        return f"--rule {name}"
    return "--" + name.replace("_", "-")
