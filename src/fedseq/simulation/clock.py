"""The simulated clock: how long a federation of fast and slow clients would wait. Runs and reports share it.

A hop takes steps / speed + bytes / bandwidth. Speeds are lognormal around `client_speed` and follow from the seed; a
client keeps its own.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from fedseq.basics.errors import FedSeqError

if TYPE_CHECKING:
    from fedseq.options.config import Config

MISSED = ("dropout", "deadline")  # reasons for which nothing came back from a hop


@dataclass(frozen=True)
class WhatIf:
    """Other client speeds than those of a run's options; None keeps the run's own."""

    client_speed: float | None = None  # SGD steps a second of the median client
    bandwidth: float | None = None  # bytes a second, each way through the server
    speed_spread: float | None = None  # sigma of the logarithm of the speeds; 0: all clients alike

    def __post_init__(self) -> None:
        for flag, value in (("--client-speed", self.client_speed), ("--bandwidth", self.bandwidth)):
            if value is not None and not value > 0:
                raise FedSeqError(f"{flag} must be greater than 0, not {value:g}.")
        if self.speed_spread is not None and not 0 <= self.speed_spread <= 5:
            raise FedSeqError(f"--speed-spread must be from 0 to 5, not {self.speed_spread:g}.")

    def applied(self, config: "Config") -> "Config":
        given = {name: value for name, value in vars(self).items() if value is not None}
        return replace(config, **given)


@dataclass(frozen=True)
class Clock:
    config: "Config"  # resolved
    passes: int  # over a client's data at each visit: its epochs, and the extra passes of the algorithm
    bytes_per_hop: float  # down and up

    @cached_property
    def _speeds(self) -> dict[int, float]:
        return {}

    def speed(self, client: int) -> float:
        """SGD steps a second."""
        from fedseq.basics import seeds  # imports numpy, which --help need not wait for

        if client not in self._speeds:
            normal = seeds.generator(self.config.seed, "client-speed", client).standard_normal()
            self._speeds[client] = self.config.client_speed * math.exp(normal * self.config.speed_spread)
        return self._speeds[client]

    def hop(self, client: int, examples: int) -> float:
        """Seconds from sending the model to a client with this many examples until its own model is back."""
        steps = self.passes * math.ceil(examples / self.config.batch_size)
        return steps / self.speed(client) + self.bytes_per_hop / self.config.bandwidth

    def failed_hop(self, client: int, examples: int, reason: str) -> float:
        """Seconds spent on a hop that failed: until the deadline if no answer came, else as for any hop.

        Without a deadline, the server waits until the answer was due.
        """
        if reason in MISSED and self.config.deadline is not None:
            return self.config.deadline
        return self.hop(client, examples)
