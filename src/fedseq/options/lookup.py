"""All options by name, those of rules included, and what a difference in one means."""

import types
from collections.abc import Iterator
from functools import partial
from typing import Any

from fedseq.options.config import OPTIONS, Config
from fedseq.options.option import Option, Role, Use, flag
from fedseq.options.tables import AVERAGES, LOCAL_RULES, SERVER_RULES, TOPOLOGIES, Parameter
from fedseq.options.uses import algorithm_of


def rule_options() -> Iterator[Option]:
    """An option for each hyper-parameter of a named rule; rules that share one name it alike."""
    by_name: dict[str, list[tuple[str, Parameter]]] = {}
    for table in (TOPOLOGIES, LOCAL_RULES, SERVER_RULES, AVERAGES):
        for rule, row in table.items():
            for parameter in row.parameters:
                by_name.setdefault(parameter.name, []).append((rule, parameter))
    for name, found in by_name.items():
        yield _rule_option(name, [rule for rule, _ in found], [parameter for _, parameter in found])


def _rule_option(name: str, rules: list[str], parameters: list[Parameter]) -> Option:
    first = parameters[0]
    by_rule = [f"{rule} {parameter.default}" for rule, parameter in zip(rules, parameters, strict=True)]
    usual = f"{first.default}" if len({parameter.default for parameter in parameters}) == 1 else ", ".join(by_rule)
    under = [f"under {topology} {value}" for topology, value in first.under.items()]
    return Option(
        name,
        (first.kind, types.NoneType) if first.default is None else (first.kind,),
        "algorithm",
        partial(_rule_default, name),
        first.help,
        first.range,
        use=Use(", ".join(rules), lambda options: name in algorithm_of(options).parameters()),
        usual="" if first.default is None else "; ".join([usual, *under]),
    )


def _rule_default(name: str, options: Any) -> Any:
    algorithm = algorithm_of(options)
    parameter = algorithm.parameters()[name]
    return parameter.under.get(algorithm.topology, parameter.default)


def all_options() -> dict[str, Option]:
    """Those of every run, and those of its rules behind them; made once for the rules that there are."""
    rows = [row for table in (TOPOLOGIES, LOCAL_RULES, SERVER_RULES, AVERAGES) for row in table.items()]
    if _made.rows != rows:
        _made.rows, _made.options = rows, {**OPTIONS, **{found.name: found for found in rule_options()}}
    return dict(_made.options)


_made = types.SimpleNamespace(rows=[], options={})


def role_of(name: str) -> Role:
    found = all_options().get(name)
    return found.role if found else Role.RESULT  # a hyper-parameter of a user's own rule


def differences_in_words(before: Config, now: Config) -> str:
    """As flags with their old and new values; empty where there are none."""
    why = {"rounds": " (the learning rate falls towards the last)"}
    return ", ".join(f"{flag(name)} {old} -> {new}{why.get(name, '')}" for name, old, new in differences(before, now))


def differences(before: Config, now: Config) -> list[tuple[str, Any, Any]]:
    """The options by which something else would come out of one than of the other, and their values."""
    old, new = before.options(), now.options()
    left_open = {name for name, found in OPTIONS.items() if getattr(now, name) == found.open}
    decisive = {"rounds"} if before.lr_schedule != "constant" else set()  # the rate falls towards the last
    if (before.patience is None) != (now.patience is None):
        decisive.add("patience")  # the best model so far was not kept, or would not be any more
    return [
        (name, old.get(name), new.get(name))
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
        and (role_of(name) is Role.RESULT or name in decisive)
        and name not in left_open
    ]
