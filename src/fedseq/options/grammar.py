"""Options whose values have a syntax of their own: algorithms, the trained part of a model, and trackers.

An algorithm is `centralized` or `[fedseq|fedseqinter][+local rule][+server rule][+average]`.
"""

from functools import lru_cache
from typing import NamedTuple

from fedseq.basics.errors import FedSeqError, unknown
from fedseq.options.tables import AVERAGES, LOCAL_RULES, SERVER_RULES, TOPOLOGIES, TRACKERS, Parameter, Rule

CENTRALIZED = "centralized"


class AlgorithmName(NamedTuple):
    """The parts of an algorithm's name; an empty part is the neutral choice."""

    topology: str = ""
    local: str = ""
    server: str = ""
    average: str = ""
    own: tuple[str, ...] = ()  # the user's own rules, as package.module:function

    @property
    def superclients(self) -> bool:
        return bool(self.topology)

    def rules(self) -> dict[str, Rule]:
        """The rows of its named parts, by name."""
        named = {**LOCAL_RULES, **SERVER_RULES, **AVERAGES, **TOPOLOGIES}
        return {part: named[part] for part in (self.local, self.server, self.average, self.topology) if part}

    def parameters(self) -> dict[str, Parameter]:
        return {parameter.name: parameter for rule in self.rules().values() for parameter in rule.parameters}


@lru_cache(maxsize=256)
def parse_algorithm(name: str) -> AlgorithmName:
    """The parts of a name; they come in this order, each at most once."""
    if name == CENTRALIZED:
        return AlgorithmName()
    kinds = (TOPOLOGIES, LOCAL_RULES, SERVER_RULES, AVERAGES)
    named, own, reached = ["", "", "", ""], [], -1
    for part in name.split("+"):
        if ":" in part:  # after the topology and the local rule, before the average
            if reached == 3:
                raise _misplaced(name, part)
            own.append(part)
            reached = max(reached, 1)
            continue
        kind = next((number for number, table in enumerate(kinds) if part in table), None)
        if part == CENTRALIZED:
            raise FedSeqError(f"algorithm '{name}': {CENTRALIZED} has no clients and takes no rules. Use it alone.")
        if kind is None:
            raise unknown("algorithm", part, (CENTRALIZED, *(row for table in kinds for row in table)))
        if kind <= reached:
            raise _misplaced(name, part)
        named[kind], reached = part, kind
    topology, local, server, average = named
    if server and local and LOCAL_RULES[local].merges:
        raise FedSeqError(
            f"algorithm '{name}': {local} has a server rule of its own and cannot be combined with {server}. "
            "Leave one of them out."
        )
    return AlgorithmName(topology, local, server, average, tuple(own))


def known_parts(name: str) -> AlgorithmName:
    """As `parse_algorithm`; the free name of an Algorithm object shows no more than its topology."""
    try:
        return parse_algorithm(name)
    except FedSeqError:
        first = name.split("+")[0]
        return AlgorithmName(topology=first if first in TOPOLOGIES else "")


def _misplaced(name: str, part: str) -> FedSeqError:
    return FedSeqError(
        f"algorithm '{name}' is not in the form [fedseq|fedseqinter][+local rule][+server rule][+average]: "
        f"'{part}' cannot stand there. Example: fedseq+fedprox+fedavgm+ema."
    )


def parse_train(text: str) -> tuple[str, int]:
    """The trained part of a model, and the rank of its adapters: all, head or lora:RANK."""
    part, _, rank = text.partition(":")
    if text in ("all", "head"):
        return text, 0
    if part != "lora" or not rank.isdecimal() or int(rank) < 1:
        raise FedSeqError(f"unknown part to train '{text}'. Valid: all, head, lora:RANK (e.g. lora:4).")
    return part, int(rank)


AUTHORS_PARTS = ("partition", "confidence", "feddyn")


def authors_parts(text: str | None) -> list[str]:
    """The names in a text such as partition+feddyn."""
    names = text.split("+") if text is not None else []
    for name in names:
        if name not in AUTHORS_PARTS:
            raise unknown("part of the authors' code", name, AUTHORS_PARTS)
    return list(dict.fromkeys(names))


def trackers_of(track: str) -> list[str]:
    """The names in a text such as tensorboard+wandb; "none" names none."""
    names = [] if track == "none" else track.split("+")
    for name in names:
        TRACKERS.row(name)
    return list(dict.fromkeys(names))
