"""Simulated attackers: some clients falsify their data, or what they send. Who does follows from the seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from fedseq.basics import seeds
from fedseq.basics.errors import FedSeqError
from fedseq.options.config import Config
from fedseq.simulation.attacks import Attack, number_of_attackers, parse_attack
from fedseq.training.examples import Examples
from fedseq.training.jobs import Job, Memory, Task
from fedseq.training.policy import Policy, Train
from fedseq.training.sgd import Trained
from fedseq.training.weights import FlatModel


@dataclass(frozen=True)
class Attackers(Policy):
    """They do nothing in pre-training but train on the data that they have falsified."""

    name = "attackers"
    attacks: Mapping[int, Attack]  # by client
    late_labels: Tensor | None = field(default=None, repr=False)  # of all examples, once attackers behave no more

    def on_client(self, train: Train) -> Train:
        def attacked(
            task: Task, model: FlatModel, job: Job, client: int, visit: int, memory: Memory, before: Tensor
        ) -> Trained:
            attack = self.attacks.get(client)
            if attack is None or job.purpose == "pretrain":
                return train(task, model, job, client, visit, memory, before)
            if self.late_labels is not None and job.round > attack.honest_rounds:
                task = replace(task, train=replace(task.train, y=self.late_labels.to(task.device)))
            trained = train(task, model, job, client, visit, memory, before)
            if attack.factor != 1:
                model.vector.copy_(before + attack.factor * (model.vector - before))
            return trained if attack.loss is None else replace(trained, loss_sum=attack.loss * trained.seen)

        return attacked


def attacked(config: Config, task: Task) -> tuple[Task, Attackers]:
    """The task with its data as attackers falsified it, and what they do to what they send."""
    chosen = attackers(config, len(task.clients))
    falsified = poisoned(config, task.train, task.clients, task.num_classes)
    if honest_at_first(config):
        return task, Attackers(chosen, falsified.y)
    return replace(task, train=falsified), Attackers(chosen)


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
