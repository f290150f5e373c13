"""Private runs: what leaves a client, or the sum of a round, is clipped to C and gets Gaussian noise of deviation z C.

A visit's change and what is uploaded beside it are clipped together, as one vector in which an upload counts by the
step it makes (the learning rate times it). What is within the clip, and gets no noise, keeps its bits. Training that
did not stay finite counts as no change, so that nothing else tells of it.

What a run has spent is how often each client's data went into something that was released. A round that is computed
again gives the same bits where noise follows from the seed, and so costs nothing. Where it is drawn anew, whatever was
asked of a client counts, also in a round that a killed server never finished: it is written down before anybody is
asked, in a file that no checkpoint takes back.
"""

import math
import os
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedseq.algorithms.base import Algorithm, keep
from fedseq.basics import seeds
from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import read_json, write_json
from fedseq.options.config import Config
from fedseq.privacy.accountant import Accountant, accountant
from fedseq.training.jobs import Job, Memory, Result, Task
from fedseq.training.policy import Plan, Policy, Train
from fedseq.training.sgd import Trained
from fedseq.training.weights import FlatModel

Visits = Sequence[int]  # to each client


@dataclass(frozen=True)
class Mechanism:
    clip: float
    noise: float  # standard deviation over the clip
    seed: int | None  # None: the system's cryptographic source

    def gaussian(self, like: Tensor, purpose: str, *keys: int) -> Tensor:
        """Noise of the mechanism's size; the same keys give the same only where it follows from the seed."""
        if self.seed is None:
            drawn = system_gaussian(like.numel())
        else:
            drawn = seeds.generator(self.seed, f"privacy-{purpose}", *keys).standard_normal(like.numel())
        return torch.from_numpy(self.noise * self.clip * drawn).to(like).view_as(like)

    def scale(self, parts: Sequence[Tensor]) -> float:
        """The factor that brings these vectors, taken as one, within the clip; 0 if they are not finite."""
        squares = sum(float(torch.linalg.vector_norm(part, dtype=torch.float64)) ** 2 for part in parts)
        if not math.isfinite(squares):
            return 0.0
        return min(1.0, self.clip / math.sqrt(squares)) if squares else 1.0


def mechanism_of(config: Config) -> Mechanism:
    assert config.dp_clip_norm is not None
    return Mechanism(
        config.dp_clip_norm, config.dp_noise_multiplier or 0.0, config.seed if config.dp_source == "seed" else None
    )


@dataclass(frozen=True)
class PrivateVisits(Policy):
    """Every client clips and noises what it sends, and does not tell its loss."""

    name = "private visits"
    mechanism: Mechanism

    def on_client(self, train: Train) -> Train:
        def private(
            task: Task, model: FlatModel, job: Job, client: int, visit: int, memory: Memory, before: Tensor
        ) -> Trained:
            trained = train(task, model, job, client, visit, memory, before)
            start, keys = before[: len(model.parameters)], (job.round, client, visit)
            released = release_visit(self.mechanism, start, model.parameters, trained.upload, job.lr, job.purpose, keys)
            return replace(trained, upload=released, loss_sum=0.0)

        return private


@dataclass(frozen=True)
class PrivateRounds(Policy):
    """The server clips the change of every chain and noises their sum."""

    name = "private rounds"
    mechanism: Mechanism

    def merge(self, results: Sequence[Result], plan: Plan) -> Sequence[Result]:
        """One result in the place of all, whose change is the noisy mean of theirs."""
        if math.isinf(self.mechanism.clip):
            return results
        start, changes = plan.jobs[0].start, [result.end - result.start for result in results]
        mean = release_round(self.mechanism, changes, start, len(plan.jobs), plan.round)
        one = Result(
            index=0, start=start, end=start + mean, examples=1, uploads={}, memory={}, hops=(), loss_sum=0.0, seen=0,
            bytes_down=0, bytes_up=0,
        )  # fmt: skip
        return [one]


@dataclass(frozen=True)
class Ledger:
    file: Path | None  # where noise is drawn anew
    num_clients: int
    by_visit: bool  # a round with several visits counts once where it is the round that gets noise

    def start(self, config: Config, sizes: Sequence[int], grouped: bool) -> Visits:
        """Before the first round: what estimating the clients costs, where they have to be."""
        estimated = self.by_visit and not grouped and config.uses_estimates
        return self._add((), {client: config.pretrain_epochs for client, n in enumerate(sizes) if n and estimated})

    def charge(self, visits: Visits, jobs: Sequence[Job]) -> Visits:
        """Before these jobs are run."""
        return self._add(visits, self._counts(jobs))

    def preview(self, visits: Visits, jobs: Sequence[Job]) -> Visits:
        """What `charge` would give."""
        return self._sum(visits, self._counts(jobs))

    def _counts(self, jobs: Sequence[Job]) -> Counter[int]:
        if self.by_visit:
            return Counter(client for job in jobs for client, _ in job.hops)
        return Counter(client for job in jobs for client in {client for client, _ in job.hops})

    def _add(self, visits: Visits, counts: Mapping[int, int]) -> Visits:
        total = self._sum(visits, counts)
        if self.file is not None and any(counts.values()):
            write_json(self.file, {"visits": total})
        return total

    def _sum(self, visits: Visits, counts: Mapping[int, int]) -> Visits:
        written = self._written()
        return tuple(
            max(visits[client] if visits else 0, written[client]) + counts.get(client, 0)
            for client in range(self.num_clients)
        )

    def _written(self) -> Sequence[int]:
        found = read_json(self.file) if self.file is not None else None
        if found is None:
            return [0] * self.num_clients
        counts = found.get("visits")
        if not isinstance(counts, list) or len(counts) != self.num_clients or not all(type(n) is int for n in counts):
            raise FedSeqError(f"{self.file} does not hold the visits of {self.num_clients} clients. Restore it.")
        return counts


@dataclass(frozen=True)
class Budget(Policy):
    """Counts visits, tells what they have spent, and allows no round that would spend more than was asked for."""

    name = "privacy"
    ledger: Ledger
    accountant: Accountant
    epsilon: float  # inf where none is set
    estimating: Visits  # before the first round

    def begin(self) -> Visits:
        return self.estimating

    def plan(self, plan: Plan, state: Visits) -> Plan | None:
        if math.isinf(self.epsilon):
            return plan
        if self.spent(self.ledger.preview(state, plan.jobs), plan.round) <= self.epsilon * (1 + 1e-9):
            return plan
        warnings.warn(
            f"the run ends after round {plan.round - 1}: one more would exceed the privacy budget of epsilon "
            f"{self.epsilon:g}, of which {self.spent(state, plan.round - 1):.3g} is spent. More rounds need more "
            "--dp-noise-multiplier from the beginning.",
            stacklevel=2,
        )
        return None

    def before(self, state: Visits, jobs: Sequence[Job]) -> Visits:
        return self.ledger.charge(state, jobs)

    def record(self, state: Visits, round_: int) -> dict[str, Any]:
        """A private client does not tell its loss."""
        spent = self.spent(state, round_)
        return {"train_loss": None, "epsilon": spent if math.isfinite(spent) else None}

    def spent(self, visits: Visits, rounds: int) -> float:
        """Epsilon of the client that was visited most; where the draws are secret, of every client."""
        return self.accountant.epsilon(rounds if self.accountant.share is not None else max(visits, default=0))


def open_ledger(config: Config, file: Path, num_clients: int) -> Ledger:
    return Ledger(file if config.dp_source == "system" else None, num_clients, config.private_visits)


def budget(config: Config, ledger: Ledger, share: float, estimating: Visits) -> Budget:
    epsilon = math.inf if config.dp_target_epsilon is None else config.dp_target_epsilon
    return Budget(ledger, accountant(config, share), epsilon, estimating)


def check_algorithm(config: Config, algorithm: Algorithm) -> None:
    """An algorithm of the user's own, of which options cannot tell."""
    if config.private_rounds and (algorithm.observe is not keep or algorithm.merge_every != 1):
        raise FedSeqError(
            f"algorithm {algorithm.name} lets its server see chains without noise (by `observe`, or by merging "
            "seldom), and cannot be used with --dp-mechanism round. Use --dp-mechanism visit."
        )


def release_visit(
    mechanism: Mechanism, start: Tensor, weights: Tensor, upload: Mapping[str, Tensor], lr: float,
    purpose: str, keys: tuple[int, ...],
) -> dict[str, Tensor]:  # fmt: skip
    """Make `weights`, in place, what may leave a client that began at `start`; what it may upload is returned."""
    steps = {name: lr * tensor for name, tensor in upload.items()}
    change = weights - start
    scale = mechanism.scale([change, *steps.values()])
    released = dict(upload)
    if scale < 1:
        weights.copy_(start + scale * change if scale else start)
        released = {name: _scaled(tensor, scale) for name, tensor in upload.items()}
    if mechanism.noise:
        sizes = [weights.numel(), *(step.numel() for step in steps.values())]
        noise, *others = mechanism.gaussian(weights.new_empty(sum(sizes)), purpose, *keys).split(sizes)
        weights.add_(noise)
        released = {
            name: tensor + other.view_as(tensor) / lr
            for (name, tensor), other in zip(released.items(), others, strict=True)
        }
    return released


def release_round(mechanism: Mechanism, changes: Sequence[Tensor], like: Tensor, units: int, round_: int) -> Tensor:
    """The mean change over all units of the round, those without a change included: the noisy sum of clipped ones."""
    total = torch.zeros_like(like)
    for change in changes:
        total += _scaled(change, mechanism.scale([change]))
    if mechanism.noise:
        total += mechanism.gaussian(total, "round", round_)
    return total / units


def _scaled(tensor: Tensor, scale: float) -> Tensor:
    return scale * tensor if scale else torch.zeros_like(tensor)  # 0 times inf is nan


def system_gaussian(count: int) -> np.ndarray:
    """Independent normal numbers of the system's cryptographic source, two of every two uniform ones (Box, Muller)."""
    pairs = -(-count // 2)
    bits = np.frombuffer(os.urandom(16 * pairs), np.uint64).reshape(2, pairs)
    radius, angle = ((bits >> np.uint64(11)) + 0.5) / 2.0**53
    length = np.sqrt(-2 * np.log(radius))
    return np.concatenate([length * np.cos(2 * np.pi * angle), length * np.sin(2 * np.pi * angle)])[:count]
