"""Simulated trouble: clients that drop out, that are too slow, that attack. All of it follows from the seed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedseq.basics import seeds
from fedseq.basics.errors import FedSeqError
from fedseq.options.config import Config
from fedseq.simulation.attacks import Attack, number_of_attackers, parse_attack
from fedseq.simulation.clock import Clock
from fedseq.training.examples import Examples


class Skipped(NamedTuple):
    """A hop that did not count, and why."""

    client: int
    visit: int
    reason: str


def failing_hops(
    config: Config, clock: Clock, round_: int, hops: Sequence[tuple[int, int]], sizes: Sequence[int]
) -> tuple[Skipped, ...]:
    """The hops of a chain that fail: the client drops out, or would miss the deadline."""
    found = []
    for client, visit in hops:
        if (
            config.client_dropout
            and seeds.generator(config.seed, "dropout-hop", round_, client, visit).random() < config.client_dropout
        ):
            found.append(Skipped(client, visit, "dropout"))
        elif config.deadline is not None and clock.hop(client, sizes[client]) > config.deadline:
            found.append(Skipped(client, visit, "deadline"))
    return tuple(found)


def attackers(config: Config, num_clients: int) -> dict[int, Attack]:
    """The clients that attack, the same during the whole run, and what they do."""
    if config.attack is None:
        return {}
    attack = parse_attack(config.attack)
    count = number_of_attackers(config.attacker_fraction, num_clients)
    chosen = seeds.generator(config.seed, "attackers").choice(num_clients, count, replace=False)
    return {int(client): attack for client in sorted(chosen)}


def honest_at_first(config: Config) -> bool:
    """True if attackers train on true labels until they are trusted."""
    return config.attack is not None and parse_attack(config.attack).honest_rounds > 0


def poisoned(config: Config, train: Examples, clients: Sequence[np.ndarray], num_classes: int) -> Examples:
    """The training data with what attackers made of their own; examples that they share with others are changed too."""
    if config.attack is None or not parse_attack(config.attack).on_data:
        return train
    x, y = train.x.clone(), train.y.clone()
    if not num_classes or y.is_floating_point():
        raise FedSeqError(f"--attack {config.attack} changes the classes of examples, and these targets are numbers.")
    for client, attack in attackers(config, len(clients)).items():
        order = seeds.generator(config.seed, "poison", 0, client).permutation(clients[client])
        flipped, triggered = (
            torch.from_numpy(order[: round(share * len(order))]).to(y.device)
            for share in (attack.flipped, attack.triggered)
        )
        y[flipped] = num_classes - 1 - y[flipped]
        if len(triggered):
            x[triggered] = with_trigger(x[triggered])
            y[triggered] = 0
    return replace(train, x=x, y=y)


def with_trigger(pictures: Tensor) -> Tensor:
    """A white square in the lower right corner, a tenth of the picture wide and at least two pixels."""
    if pictures.dim() != 4:
        raise FedSeqError("--attack backdoor puts a trigger into pictures, and the data holds none.")
    side = max(2, pictures.shape[-1] // 10)
    white = 255 if not pictures.is_floating_point() else float(pictures.max())
    marked = pictures.clone()
    marked[:, :, -side:, -side:] = white
    return marked
