"""Clip to C, add a Gaussian of standard deviation z times C: to what leaves a client, or to the sum of a round.

A visit's change and what is uploaded beside it are clipped together, as one vector in which an upload counts by the
step it makes (the learning rate times it). What is within the clip, and gets no noise, keeps its bits. Training that
did not stay finite counts as no change, so that nothing else tells of it.
"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedseq.basics import seeds
from fedseq.options.config import Config


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


def for_visits(config: Config) -> Mechanism | None:
    return _mechanism(config) if config.private_visits else None


def for_rounds(config: Config) -> Mechanism | None:
    return _mechanism(config) if config.private_rounds else None


def _mechanism(config: Config) -> Mechanism:
    assert config.dp_clip_norm is not None
    return Mechanism(
        config.dp_clip_norm, config.dp_noise_multiplier or 0.0, config.seed if config.dp_source == "seed" else None
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
