"""Simulated trouble: clients that drop out, that are too slow, that attack. All of it follows from the seed."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from fedseq import seeds
from fedseq.config import Config
from fedseq.names import parse_attack


class Skipped(NamedTuple):
    """A hop that did not count, and why."""

    client: int
    visit: int
    reason: str


def failing_hops(
    config: Config, round_: int, hops: Sequence[tuple[int, int]], sizes: Sequence[int]
) -> tuple[Skipped, ...]:
    """The hops of a chain that fail: the client drops out, or would miss the deadline."""
    found = []
    for client, visit in hops:
        if (
            config.dropout
            and seeds.generator(config.seed, "dropout-hop", round_, client, visit).random() < config.dropout
        ):
            found.append(Skipped(client, visit, "dropout"))
        elif config.deadline is not None and hop_seconds(config, client, sizes[client]) > config.deadline:
            found.append(Skipped(client, visit, "deadline"))
    return tuple(found)


def hop_seconds(config: Config, client: int, examples: int) -> float:
    """What a visit takes on the simulated clock: SGD steps over the client's own speed."""
    spread = seeds.generator(config.seed, "client-speed", client).standard_normal() * config.speed_spread
    steps = config.client_epochs * math.ceil(examples / config.batch_size)
    return steps / (config.client_speed * math.exp(spread))


def attackers(config: Config, num_clients: int) -> dict[int, float]:
    """The clients that attack, the same during the whole run, and the factor by which they falsify their update."""
    if config.attack is None:
        return {}
    factor = parse_attack(config.attack)
    count = round(config.attackers * num_clients)
    chosen = seeds.generator(config.seed, "attackers").choice(num_clients, count, replace=False)
    return {int(client): factor for client in sorted(chosen)}
