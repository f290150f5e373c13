"""The algorithms, and how a name becomes one: `build` composes the rules that it names."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedseq.algorithms.averages import ema, window
from fedseq.algorithms.base import FEDAVG, Algorithm, Hop, Setting, State, checked
from fedseq.algorithms.centralized import centralized
from fedseq.algorithms.fedacg import fedacg
from fedseq.algorithms.feddyn import feddyn
from fedseq.algorithms.fedprox import fedprox
from fedseq.algorithms.fedseq import fedseq, fedseqinter
from fedseq.algorithms.ghbm import ghbm
from fedseq.algorithms.relay import relay
from fedseq.algorithms.robust import median, trimmed_mean
from fedseq.algorithms.scaffold import scaffold
from fedseq.algorithms.server import fairavg, fedadam, fedavgm, fedyogi
from fedseq.basics.errors import FedSeqError, unknown
from fedseq.options.config import Config
from fedseq.options.grammar import CENTRALIZED
from fedseq.options.tables import AVERAGES, LOCAL_RULES, SERVER_RULES, TOPOLOGIES, Rule, load_user_code


def fedavg() -> Algorithm:
    """FedAvg (McMahan et al. 2017), the neutral record."""
    return FEDAVG


def build(config: Config) -> Algorithm:
    """The algorithm that a config names, its parts from the inside out: local rule, server rules, average, topology."""
    if config.algorithm == CENTRALIZED:
        return centralized()
    rules, algorithm = dict(config.rules), FEDAVG
    parts = config.algorithm.split("+")
    for part in [part for part in parts if part not in TOPOLOGIES] + [part for part in parts if part in TOPOLOGIES]:
        if ":" in part:
            algorithm = _apply_own(part, rules, algorithm, first=algorithm is FEDAVG)
        elif part in LOCAL_RULES:
            of_authors = {"official": True} if part == "feddyn" and config.follows_authors(part) else {}
            algorithm = LOCAL_RULES[part].load()(**_arguments(LOCAL_RULES[part], rules), **of_authors)
        else:
            row = {**SERVER_RULES, **AVERAGES, **TOPOLOGIES}[part]
            algorithm = row.load()(algorithm, **_arguments(row, rules))
    return algorithm


def own_parameters(name: str) -> list[str]:
    """The hyper-parameters of the user's own rules in an algorithm's name, as `rule.parameter`."""
    found = []
    for part in filter(lambda part: ":" in part, name.split("+")):
        parameters = list(inspect.signature(load_user_code("rule", part)).parameters)
        rule = part.partition(":")[2]
        found += [f"{rule}.{parameter}" for parameter in parameters[_wraps(parameters) :]]
    return found


def _wraps(parameters: Sequence[str]) -> bool:
    return list(parameters[:1]) == ["inner"]


def _arguments(row: Rule, rules: Mapping[str, Any]) -> dict[str, Any]:
    return {parameter.argument: rules.get(parameter.name) for parameter in row.parameters}


def _apply_own(part: str, rules: Mapping[str, Any], inner: Algorithm, first: bool) -> Algorithm:
    """A user's rule, package.module:function: a local one, or a wrapper if its first argument is named `inner`."""
    function: Callable[..., Any] = load_user_code("rule", part)
    name = part.partition(":")[2]
    arguments = {key.removeprefix(f"{name}."): value for key, value in rules.items() if key.startswith(f"{name}.")}
    parameters = list(inspect.signature(function).parameters)
    wraps = _wraps(parameters)
    if not wraps and not first:
        raise FedSeqError(
            f"rule '{part}' cannot stand behind {inner.name}: only a rule whose first argument is `inner` wraps others."
        )
    for argument in arguments:
        if argument not in parameters[wraps:]:
            raise unknown(f"hyper-parameter of {name}:", argument, parameters[wraps:])
    for parameter in list(inspect.signature(function).parameters.values())[wraps:]:
        required = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        )
        if required and parameter.name not in arguments:
            raise FedSeqError(f"rule '{part}' needs {parameter.name}, as {name}.{parameter.name}, or a default for it.")
    algorithm = function(inner, **arguments) if wraps else function(**arguments)
    if not isinstance(algorithm, Algorithm):
        raise FedSeqError(f"rule '{part}' must return an Algorithm, not {type(algorithm).__name__}.")
    return checked(algorithm)


__all__ = [
    "Algorithm",
    "Hop",
    "Setting",
    "State",
    "build",
    "centralized",
    "ema",
    "fairavg",
    "fedacg",
    "fedadam",
    "fedavg",
    "fedavgm",
    "feddyn",
    "fedprox",
    "fedseq",
    "fedseqinter",
    "fedyogi",
    "ghbm",
    "median",
    "relay",
    "scaffold",
    "trimmed_mean",
    "window",
]  # fmt: skip
