"""What a round will do: which units are drawn, in which order their clients train, who fails."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from fedseq.algorithms.base import Algorithm, Setting, starts
from fedseq.basics import seeds
from fedseq.options.config import Config
from fedseq.runs.evidence import RoundLog
from fedseq.runs.private import Budget, Visits
from fedseq.runs.snapshots import Snapshot
from fedseq.simulation.attacks import Attack
from fedseq.simulation.clock import Clock
from fedseq.training.failures import failing_hops
from fedseq.training.gate import Watch, limit, watch
from fedseq.training.jobs import Job, Memory

Unit = tuple[int, ...]
Known = TypeVar("Known")


@dataclass(frozen=True)
class Setup:
    """What the round loop needs and never changes."""

    config: Config  # resolved
    algorithm: Algorithm
    units: Sequence[Unit]  # clients, or superclients
    sizes: Sequence[int]  # examples of each client
    attackers: Mapping[int, Attack]  # clients that falsify what they send, or their data
    setting: Setting
    log: RoundLog
    privacy: Budget | None = None


@dataclass(frozen=True)
class Plan:
    jobs: list[Job]
    drawn: list[int]  # units; the place of each is its slot
    skipped: list[dict[str, Any]]  # hops that are known to fail


def plan(setup: Setup, snapshot: Snapshot, units: Sequence[int] | None = None) -> Plan:
    """The jobs of the next round, for units drawn or given; a chain in which nobody is left has none."""
    config, round_ = setup.config, snapshot.round + 1
    drawn = draw(len(setup.units), setup.setting, config.seed, round_) if units is None else list(units)
    watching = watch(config, snapshot.gate)
    message = setup.algorithm.message(snapshot.state)
    # What is sent up beside the model is as large as what is sent down beside it.
    moved = 2 * sum(tensor.nbytes for tensor in (snapshot.state["weights"], *message.values()))
    clock = Clock(config, config.local_epochs + setup.algorithm.extra_passes, moved)
    jobs, skipped = [], []
    together = join(drawn, joined_in(config, round_))
    for index, start in enumerate(starts(setup.algorithm, snapshot.state, len(together))):
        unit, clients = together[index][0], unite([setup.units[one] for one in together[index]])
        hops = chain(clients, config.superclient_epochs, config.seed, round_)
        failed = failing_hops(config, clock, round_, hops, setup.sizes)
        skipped += [{"unit": unit, "client": hop.client, "reason": hop.reason} for hop in failed]
        left = tuple(hop for hop in hops if hop not in {(hop.client, hop.visit) for hop in failed})
        if not left:
            continue
        jobs.append(
            Job(
                index=index,
                unit=unit,
                round=round_,
                hops=left,
                start=start,
                algorithm=setup.algorithm,
                lr=learning_rate(config, round_),
                epochs=config.local_epochs,
                message=message,
                memory={
                    client: cast(Memory, snapshot.memory[client])  # what is stored reads like it
                    for client in clients
                    if client in snapshot.memory
                },
                largest_change=limit(config, snapshot.gate.changes),
                watch=watching and Watch(_of(clients, watching.standings), watching.others),
                attackers=_of(clients, setup.attackers),
            )
        )
    return Plan(jobs, drawn, skipped)


def _of(clients: Unit, known: Mapping[int, Known]) -> dict[int, Known]:
    return {client: known[client] for client in clients if client in known}


def charge(setup: Setup, snapshot: Snapshot, jobs: Sequence[Job]) -> Visits:
    """Visits to each client after these jobs, which are about to be run; none are counted without privacy."""
    return setup.privacy.ledger.charge(snapshot.visits, jobs) if setup.privacy else ()


def last_round(setup: Setup, snapshot: Snapshot) -> int:
    """How far the run goes: as far as it was asked to, but not into a round that its privacy budget does not allow."""
    budget, rounds = setup.privacy, setup.config.rounds
    if budget is None or math.isinf(budget.epsilon) or snapshot.round >= rounds:
        return rounds
    visits = budget.ledger.preview(snapshot.visits, plan(setup, snapshot).jobs)
    return rounds if budget.allows(visits, snapshot.round + 1) else snapshot.round


def draw(num_units: int, setting: Setting, seed: int, round_: int) -> list[int]:
    """The units of a round, without replacement, in random order."""
    chosen = seeds.generator(seed, "draw", round_).choice(num_units, setting.units_per_round, replace=False)
    return [int(unit) for unit in chosen]


def joined_in(config: Config, round_: int) -> int:
    """How many of a round's superclients are trained as one: long chains first, if at all."""
    ended = config.long_chain_rounds is not None and round_ > config.long_chain_rounds
    return 1 if ended else config.superclients_per_chain


def chains_in(setup: Setup, round_: int) -> int:
    """How many chains a round has, whoever of them fails."""
    return -(-setup.setting.units_per_round // joined_in(setup.config, round_))


def join(drawn: Sequence[int], together: int) -> list[Sequence[int]]:
    """Superclients in the order they were drawn, so many at a time; the last may be fewer."""
    return [drawn[first : first + together] for first in range(0, len(drawn), together)]


def unite(units: Sequence[Unit]) -> Unit:
    """One superclient of several, the same in whichever order they were drawn."""
    return units[0] if len(units) == 1 else tuple(sorted(client for unit in units for client in unit))


def units_per_round(fraction: float, units: int) -> int:
    return max(1, int(fraction * units + 1e-9))  # 0.29 * 100 is 28.999999999999996


def chain(clients: Unit, passes: int, seed: int, round_: int) -> tuple[tuple[int, int], ...]:
    """(client, visit) in the order of training: every pass visits each client once, in an order of its own."""
    hops = []
    for visit in range(passes):
        order = seeds.generator(seed, "chain", round_, min(clients), visit).permutation(clients)
        hops += [(int(client), visit) for client in order]
    return tuple(hops)


def learning_rate(config: Config, round_: int) -> float:
    past = round_ - 1
    factors = {
        "constant": 1.0,
        "exponential": config.lr_decay**past,
        "linear": _from_one_to(config.lr_final, 1 - past / config.rounds),
        "cosine": _from_one_to(config.lr_final, 0.5 * (1 + math.cos(math.pi * past / config.rounds))),
    }
    rate = config.lr * factors[config.lr_scheduler]
    return rate * round_ / config.warmup_rounds if round_ < config.warmup_rounds else rate


def _from_one_to(final: float, left: float) -> float:
    """1 where all is left, `final` where nothing is."""
    return final + (1 - final) * left
