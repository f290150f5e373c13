"""What a round will do: which units are drawn, in which order their clients train, who fails."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from fedseq import seeds
from fedseq.algorithms.base import Algorithm, Setting, starts
from fedseq.checkpoints import Progress
from fedseq.config import Config, known
from fedseq.failures import failing_hops
from fedseq.gate import limit
from fedseq.jobs import Job, Memory

Unit = tuple[int, ...]


@dataclass(frozen=True)
class Federation:
    """Everything the round loop needs."""

    config: Config  # resolved
    algorithm: Algorithm
    units: Sequence[Unit]  # clients, or superclients
    sizes: Sequence[int]  # examples of each client
    attackers: Mapping[int, float]  # clients that falsify their update by a factor
    setting: Setting
    folder: Path


@dataclass(frozen=True)
class Plan:
    jobs: list[Job]
    skipped: list[dict[str, Any]]  # hops that are known to fail


def plan(federation: Federation, progress: Progress) -> Plan:
    """The jobs of the next round; a chain in which nobody is left has none."""
    config, round_ = federation.config, progress.round + 1
    drawn = draw(len(federation.units), federation.setting, config.seed, round_)
    message = federation.algorithm.message(progress.state)
    jobs, skipped = [], []
    for index, (unit, start) in enumerate(zip(drawn, starts(progress.state, len(drawn)), strict=True)):
        clients = federation.units[unit]
        hops = chain(clients, config.superclient_epochs, config.seed, round_)
        failed = failing_hops(config, round_, hops, federation.sizes)
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
                algorithm=federation.algorithm,
                lr=learning_rate(config, round_),
                epochs=config.client_epochs,
                message=message,
                memory={
                    client: cast(Memory, progress.memory[client])  # what is stored reads like it
                    for client in clients
                    if client in progress.memory
                },
                largest_change=limit(config, progress.changes),
                attackers={
                    client: federation.attackers[client] for client in clients if client in federation.attackers
                },
            )
        )
    return Plan(jobs, skipped)


def draw(num_units: int, setting: Setting, seed: int, round_: int) -> list[int]:
    """The units of a round, without replacement, in random order."""
    chosen = seeds.generator(seed, "draw", round_).choice(num_units, setting.units_per_round, replace=False)
    return [int(unit) for unit in chosen]


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
    rate = known(config.lr) * config.lr_decay ** (round_ - 1)
    if config.lr_schedule == "cosine":
        rate *= 0.5 * (1 + math.cos(math.pi * (round_ - 1) / known(config.rounds)))
    return rate
