"""The names of algorithms: `[fedseq|fedseqinter][+local rule][+server rule][+average]`, and the parts' parameters."""

from functools import lru_cache
from typing import NamedTuple

from fedseq.basics.errors import FedSeqError, unknown
from fedseq.options.tables import AVERAGES, LOCAL_RULES, SERVER_RULES, TOPOLOGIES, TRACKERS, Parameter, Rule

CENTRALIZED = "centralized"


class AlgorithmName(NamedTuple):
    """An algorithm's name, taken apart; an empty part is the neutral choice."""

    topology: str = ""
    local: str = ""
    server: str = ""
    average: str = ""
    own: tuple[str, ...] = ()  # rules of the user's, package.module:function

    @property
    def superclients(self) -> bool:
        return bool(self.topology)

    def rules(self) -> list[Rule]:
        """The rows of its named parts."""
        named = {**LOCAL_RULES, **SERVER_RULES, **AVERAGES, **TOPOLOGIES}
        return [named[part] for part in (self.local, self.server, self.average, self.topology) if part]

    def parameters(self) -> dict[str, Parameter]:
        return {parameter.name: parameter for rule in self.rules() for parameter in rule.parameters}


@lru_cache(maxsize=256)
def parse_algorithm(name: str) -> AlgorithmName:
    """`centralized` and every composition; parts come in this order, each at most once."""
    if name == CENTRALIZED:
        return AlgorithmName()
    topology, local, server, average = "", "", "", ""
    own: list[str] = []
    for part in name.split("+"):
        if average:  # of the model that all other parts have made
            raise _misplaced(name, part)
        if ":" in part:
            own.append(part)
        elif part in TOPOLOGIES:
            if topology or local or server or own:
                raise _misplaced(name, part)
            topology = part
        elif part in LOCAL_RULES:
            if local or server or own:
                raise _misplaced(name, part)
            local = part
        elif part in SERVER_RULES:
            if server:
                raise _misplaced(name, part)
            server = part
        elif part in AVERAGES:
            average = part
        else:
            raise unknown("algorithm", part, (CENTRALIZED, *TOPOLOGIES, *LOCAL_RULES, *SERVER_RULES, *AVERAGES))
    if server and local and LOCAL_RULES[local].merges:
        raise FedSeqError(
            f"algorithm '{name}': {local} has a server rule of its own and cannot be combined with {server}. "
            "Leave one of them out."
        )
    return AlgorithmName(topology, local, server, average, tuple(own))


def _misplaced(name: str, part: str) -> FedSeqError:
    return FedSeqError(
        f"algorithm '{name}' is not in the form [fedseq|fedseqinter][+local rule][+server rule][+average]: "
        f"'{part}' cannot stand there. Example: fedseq+fedprox+fedavgm+ema."
    )


def parse_train(text: str) -> tuple[str, int]:
    """The part of a model that is trained, and the rank of adapters: all, head or lora:RANK."""
    part, _, rank = text.partition(":")
    if text in ("all", "head"):
        return text, 0
    if part != "lora" or not rank.isdecimal() or int(rank) < 1:
        raise FedSeqError(f"unknown part to train '{text}'. Valid: all, head, lora:RANK (e.g. lora:4).")
    return part, int(rank)


def trackers_of(track: str) -> list[str]:
    """The names in tensorboard+wandb, of which there are none in "none"."""
    names = [] if track == "none" else track.split("+")
    for name in names:
        TRACKERS.row(name)
    return list(dict.fromkeys(names))
