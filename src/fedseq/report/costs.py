"""What a run costs beside rounds: client updates, bytes and simulated seconds.

A chain of eight clients takes eight local updates one after another, so rounds alone flatter FedSeq. Simulated time
says what a federation would wait: a hop takes steps / speed + bytes / bandwidth, a round waits for its slowest chain,
and FedSeqInter's slots wait for each other only where they are merged. Between merges the evaluated model needs every
slot's part of the round, so the clock of a round is that of its last slot.
"""

import math
import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from fedseq.config import Config
from fedseq.errors import FedSeqError
from fedseq.names import AlgorithmName, parse_algorithm
from fedseq.report.reading import Details, read_details
from fedseq.results import Run


@dataclass(frozen=True)
class Devices:
    """The clients of the simulated clock."""

    speed: float = 10.0  # SGD steps a second of the median client
    bandwidth: float = 1e6  # bytes a second, each way through the server
    spread: float = 0.0  # sigma of the logarithm of the speeds; 0: all alike
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in (("--client-speed", self.speed), ("--bandwidth", self.bandwidth)):
            if not value > 0:
                raise FedSeqError(f"{name} must be greater than 0, not {value:g}.")
        if not 0 <= self.spread <= 5:
            raise FedSeqError(f"--speed-spread must be from 0 to 5, not {self.spread:g}.")

    def speeds(self, clients: int) -> list[float]:
        draws = random.Random(self.seed)
        return [self.speed * math.exp(self.spread * draws.gauss()) for _ in range(clients)]

    def describe(self) -> str:
        spread = f", lognormal spread {self.spread:g} (seed {self.seed})" if self.spread else ""
        return f"{self.speed:g} steps/s per client{spread}, {human_bytes(self.bandwidth)}/s"


@dataclass(frozen=True)
class Costs:
    """Running totals by round."""

    rounds: tuple[int, ...]
    updates: tuple[int, ...]
    bytes: tuple[int, ...]
    seconds: tuple[float, ...]  # empty where the folder does not tell

    def until(self, round_: int) -> tuple[int, int, float | None]:
        """Updates, bytes and seconds at the end of a round."""
        at = bisect_left(self.rounds, round_)
        return self.updates[at], self.bytes[at], self.seconds[at] if self.seconds else None


def run_costs(run: Run, devices: Devices, details: Details | None = None) -> Costs:
    details = details or read_details(run.folder)
    lines = run.metrics
    moved = [line.get("bytes_down", 0) + line.get("bytes_up", 0) for line in lines]
    central = run.config.algorithm == "centralized"
    return Costs(
        rounds=tuple(line["round"] for line in lines),
        updates=tuple(accumulate(line.get("client_updates", 0) for line in lines)),
        bytes=tuple(accumulate([0] * len(moved) if central else moved)),
        seconds=tuple(simulated_seconds(run.config, lines, details, devices)),
    )


def simulated_seconds(
    config: Config, lines: Sequence[dict[str, Any]], details: Details, devices: Devices
) -> list[float]:
    """The clock at the end of each round."""
    if not details.examples or not all(isinstance(line.get("clients"), list) for line in lines):
        return []
    speeds = devices.speeds(len(details.examples))
    visits = zip(steps_per_visit(config, details.examples), speeds, strict=True)
    computing = {client: steps / speed for client, (steps, speed) in enumerate(visits)}
    merge_every = _merge_every(config, details)
    clocks: list[float] = []
    slots = [0.0] * max((len(line["clients"]) for line in lines), default=0)
    for line in lines:
        hop = _bytes_per_hop(config, line) / devices.bandwidth
        for slot, chain in enumerate(line["clients"]):
            try:
                slots[slot] += sum(map(computing.__getitem__, chain)) + hop * len(chain)
            except (KeyError, TypeError):  # the files do not belong together
                return []
        clocks.append(max(slots, default=0.0))
        if line["round"] % merge_every == 0:
            slots = [clocks[-1]] * len(slots)
    return clocks


def steps_per_visit(config: Config, examples: Sequence[int]) -> list[int]:
    """SGD steps of a client's visit; SCAFFOLD's option 1 takes the gradient over all its data once more."""
    passes = config.client_epochs
    if algorithm_parts(config).local == "scaffold" and config.scaffold_option == 1:
        passes += 1
    return [passes * math.ceil(size / config.batch_size) for size in examples]


def algorithm_parts(config: Config) -> AlgorithmName:
    """Of an algorithm of one's own, nothing is known but its name."""
    try:
        return parse_algorithm(config.algorithm)
    except FedSeqError:
        return AlgorithmName()


def _merge_every(config: Config, details: Details) -> int:
    if algorithm_parts(config).topology != "fedseqinter":
        return 1
    return config.merge_every or max(1, len(details.superclients))


def _bytes_per_hop(config: Config, line: dict[str, Any]) -> float:
    if config.algorithm == "centralized":
        return 0.0
    return (line.get("bytes_down", 0) + line.get("bytes_up", 0)) / max(1, line.get("client_updates", 0))


def human_bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"


def human_seconds(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.3g} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
