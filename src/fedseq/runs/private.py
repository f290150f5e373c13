"""What a private run has spent: how often each client's data went into something that was released, and what it may.

A round that is computed again gives the same bits where noise follows from the seed, and so costs nothing. Where it is
drawn anew, whatever was asked of a client counts, also in a round that a killed server never finished: it is written
down before anybody is asked, in a file that no checkpoint takes back.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from fedseq.algorithms.base import Algorithm, keep
from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import write_json
from fedseq.options.config import Config
from fedseq.options.privacy_plan import accountant
from fedseq.privacy.accountant import Accountant
from fedseq.runs.folder import RunFolder, read_json
from fedseq.training.jobs import Job, Result
from fedseq.training.privacy import for_rounds, release_round

Visits = tuple[int, ...]  # of each client


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
class Budget:
    ledger: Ledger
    accountant: Accountant
    epsilon: float  # inf where none is set

    def spent(self, visits: Visits, rounds: int) -> float:
        """By the client that took part most often; where who takes part is secret, by any."""
        return self.accountant.epsilon(rounds if self.accountant.share is not None else max(visits, default=0))

    def allows(self, visits: Visits, rounds: int) -> bool:
        return self.spent(visits, rounds) <= self.epsilon * (1 + 1e-9)


def open_ledger(config: Config, files: RunFolder, num_clients: int) -> Ledger | None:
    if not config.private:
        return None
    return Ledger(files.ledger if config.dp_source == "system" else None, num_clients, config.private_visits)


def make_budget(config: Config, ledger: Ledger | None, share: float) -> Budget | None:
    if ledger is None:
        return None
    return Budget(
        ledger, accountant(config, share), math.inf if config.dp_target_epsilon is None else config.dp_target_epsilon
    )


def check_algorithm(config: Config, algorithm: Algorithm) -> None:
    """An algorithm of the user's own, of which options cannot tell."""
    if config.private_rounds and (algorithm.observe is not keep or algorithm.merge_every != 1):
        raise FedSeqError(
            f"algorithm {algorithm.name} lets its server see chains without noise (by `observe`, or by merging "
            "seldom), and cannot be used with --dp-mechanism round. Use --dp-mechanism visit."
        )


def noisy(config: Config, results: Sequence[Result], start: Tensor, units: int, round_: int) -> Sequence[Result]:
    """In private rounds: one result in the place of all, whose change is the noisy mean of theirs."""
    mechanism = for_rounds(config)
    if mechanism is None or math.isinf(mechanism.clip):
        return results
    mean = release_round(mechanism, [result.end - result.start for result in results], start, units, round_)
    one = Result(
        index=0, start=start, end=start + mean, examples=1, uploads={}, memory={}, hops=(), loss_sum=0.0, seen=0,
        bytes_down=0, bytes_up=0,
    )  # fmt: skip
    return [one]


def used_up(config: Config, round_: int, spent: float) -> str:
    return (
        f"the run ends after round {round_} of {config.rounds}: one more would exceed the privacy budget of epsilon "
        f"{config.dp_target_epsilon:g}, of which {spent:.3g} is spent. More rounds need more --dp-noise-multiplier "
        "from the beginning."
    )
