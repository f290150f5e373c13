"""What an option carries: its default, range, choices, meaning, the runs that it applies to, and what it changes.

Help, checks, YAML files, what may change on resume and what makes two runs comparable are all read from here, so a
new option is one line in config.py, or one in the row of its rule.
"""

import dataclasses
import math
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedseq.options.config import Config


@dataclass(frozen=True)
class Range:
    """Which values an option may have: as a condition, and in words."""

    holds: Callable[[Any], bool]
    words: str


POSITIVE = Range(lambda value: value > 0 and math.isfinite(value), "greater than 0")
AT_LEAST_0 = Range(lambda value: value >= 0 and math.isfinite(value), "0 or more")
AT_LEAST_1 = Range(lambda value: value >= 1, "1 or more")
SHARE = Range(lambda value: 0 < value <= 1, "greater than 0 and at most 1")
FROM_0_TO_1 = Range(lambda value: 0 <= value <= 1, "from 0 to 1")
FROM_1_TO_1000 = Range(lambda value: 1 <= value <= 1000, "from 1 to 1,000")  # what as many things are kept of
BELOW_1 = Range(lambda value: 0 <= value < 1, "at least 0 and less than 1")


class Role(Enum):
    """What changes with the option's value."""

    RESULT = "the results"  # a run cannot be continued with another value
    EXTENT = "how far the run goes"  # may change when a run is continued
    PLACE = "only where and how it is computed"  # may change too, and the numbers stay the same


@dataclass(frozen=True)
class Condition:
    """Which runs an option applies to: in words, and as a condition on the run's options."""

    words: str
    holds: "Callable[[Config], bool]"


ALWAYS = Condition("", lambda run: True)
ALWAYS_DECIDED = object()  # equal to no value


@dataclass(frozen=True)
class Option:
    name: str
    kinds: tuple[type, ...]  # what it may be; NoneType if it may be absent
    section: str
    default: Any  # a value, or a function of a config whose earlier fields are filled in
    help: str
    range: Range | None = None
    choices: Iterable[str] | None = None  # names of a table
    when: Condition = ALWAYS
    role: Role = Role.RESULT
    simulated: bool = False  # meaningless in a federation of real clients
    usual: str = ""  # the default in words, if it depends on other options
    metavar: str = ""  # what stands for its value in help, if not its kind
    undecided: Any = ALWAYS_DECIDED  # the value that leaves the choice to the start of the run, which knows the data

    @property
    def flag(self) -> str:
        return flag(self.name)

    def default_for(self, config: "Config") -> Any:
        return self.default(config) if callable(self.default) else self.default

    @property
    def usual_words(self) -> str:
        """The default in words; empty if there is none."""
        return self.usual or ("" if callable(self.default) or self.default is None else f"{self.default}")

    def help_text(self) -> str:
        usual = self.usual_words
        notes = [f"For {self.when.words}." if self.when.words else "", f"Default: {usual}." if usual else ""]
        return " ".join([f"{self.help}.", *filter(None, notes)])


def option(section: str, default: "Callable[[Config], Any] | str | float | None", help: str, **more: Any) -> Any:
    """A field of Config; `more` are fields of Option."""
    return dataclasses.field(metadata={"section": section, "default": default, "help": help, **more})


def options_of(record: type) -> dict[str, Option]:
    """The fields of a record that were made by `option`, by name."""
    hints = typing.get_type_hints(record)
    return {
        field.name: Option(field.name, typing.get_args(hints[field.name]) or (hints[field.name],), **field.metadata)
        for field in dataclasses.fields(record)
        if field.metadata
    }


def brief(value: Any) -> str:
    """A value as a person would write it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def flag(name: str) -> str:
    """The option on the command line; a dot means a parameter of the user's own rule."""
    return f"--rule {name}" if "." in name else "--" + name.replace("_", "-")
