"""Trying to break the promise of a private run: every client is a canary, and two attackers look for them.

A canary that is in makes a change of its own direction, twice as long as the clip; one that is out makes none. The run
is the real one: options, round loop, training, noise and merging. The attackers know every direction and do not know
who is in. One sees what a client's successor and its predecessor see: the model before and after each visit. The other
sees the initial and the final model alone. Both estimate the noise from what is left in all other directions.

    .venv/bin/python benchmarks/privacy_audit.py dataset=digits num_clients=400 fraction=1 rounds=1 grouping=random \\
        dp_target_epsilon=1

Their right guesses become a lower bound on epsilon (Steinke, Nasr and Jagielski 2023): many canaries, each in or out by
a fair coin; an attacker guesses which, of as many as it dares. If every canary is (epsilon, delta) private, no attacker
is right more often than a coin that falls e^epsilon to 1, but for delta. One that is right too often refutes the
epsilon, and the script ends with 1.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedseq.algorithms.base import Hop, UploadAndMemory
from fedseq.api.experiment import execute
from fedseq.basics import seeds
from fedseq.basics.errors import FedSeqError
from fedseq.cli.console import make_console, print_table
from fedseq.engines.serial import Evaluated, SerialEngine
from fedseq.options.config import Config
from fedseq.options.resolve import resolve
from fedseq.privacy.gaussian import least
from fedseq.report.formats import TextTable
from fedseq.rounds.prepare import named_parts
from fedseq.training.chains import run_job
from fedseq.training.jobs import Job, Result, Task, never
from fedseq.training.reporter import QUIET, Reporter

SHARES = (1.0, 0.5, 0.25, 0.125, 0.0625)  # of the canaries that are guessed, the surest first


@dataclass(frozen=True)
class Audit:
    claimed: float
    successor: float  # lower bounds on epsilon
    reader: float
    canaries: int
    protects_from_successor: bool

    @property
    def broken(self) -> bool:
        return self.reader > self.claimed or (self.protects_from_successor and self.successor > self.claimed)


def audit(config: Config, reporter: Reporter = QUIET) -> Audit:
    if not config.private:
        raise FedSeqError(
            "there is no promise to audit. Give --dp-clip-norm, and --dp-noise-multiplier or --dp-target-epsilon."
        )
    parts = named_parts(replace(config, engine="serial", workers=None), reporter)
    found: list[Witness] = []

    def witness(_: Config, task: Task) -> Witness:
        found.append(Witness(task, config))
        return found[0]

    with tempfile.TemporaryDirectory() as folder:
        run = execute(parts, Path(folder) / "run", reporter, witness)
    seen, claimed = found[0], run.metrics[-1]["epsilon"]
    canaries = sorted(seen.visits)
    present = [bool(seen.present[client]) for client in canaries]
    secret = not config.private_visits and config.dp_source == "seed"  # the reader does not know who was drawn
    scores = reader_scores(seen, canaries, secret)
    return Audit(
        claimed=float("inf") if claimed is None else claimed,
        successor=lower_bound([seen.scores[client] for client in canaries], present, config.dp_target_delta),
        reader=lower_bound(scores, present, config.dp_target_delta),
        canaries=len(canaries),
        protects_from_successor=config.private_visits,
    )


class Witness(SerialEngine):
    """The serial engine, hop by hop: it plants the canaries, and keeps what the attackers see."""

    def __init__(self, task: Task, config: Config):
        super().__init__(task)
        assert config.dp_clip_norm is not None
        self.clip = config.dp_clip_norm if np.isfinite(config.dp_clip_norm) else 1.0
        self.size, self.clients = len(self.model.parameters), len(task.clients)
        if self.size < 2 * self.clients:
            raise FedSeqError(f"{self.clients} canaries need a model of {2 * self.clients} parameters or more.")
        self.signs = seeds.generator(config.seed, "canary-signs").choice([-1.0, 1.0], self.size)
        self.present = seeds.generator(config.seed, "canaries").random(self.clients) < 0.5
        self.scores: dict[int, float] = {}
        self.visits: dict[int, int] = {}
        self.first: Tensor | None = None
        self.released: Tensor | None = None
        self.fresh = False

    def direction(self, client: int) -> Tensor:
        """Of length 1, and at right angles to all others: random signs on coordinates of its own."""
        found = np.zeros(self.size)
        found[client :: self.clients] = self.signs[client :: self.clients]
        return torch.from_numpy(found / np.linalg.norm(found)).float()

    def run(self, jobs: Sequence[Job], stopped: Callable[[], bool] = never) -> Iterator[Result]:
        self.fresh = True
        for job in jobs:
            self.first = job.start if self.first is None else self.first
            current = job.start
            for client, visit in job.hops:
                planted = 2 * self.clip * self.direction(client) * float(self.present[client])
                rule = replace(job.algorithm, correct=None, finish=partial(plant, change=planted))
                hop = replace(job, hops=((client, visit),), start=current, algorithm=rule, memory={})
                result = run_job(self.task, self.model, hop)
                self.look(client, result.end - current)
                current = result.end
            examples = sum(len(self.task.clients[client]) for client in {client for client, _ in job.hops})
            yield replace(result, start=job.start, end=current, hops=job.hops, examples=examples)

    def look(self, client: int, change: Tensor) -> None:
        """The successor's evidence that the client is in: the logarithm of the likelihood ratio, summed over visits."""
        along, noise = project(change, self.direction(client), self.clip)
        ratio = self.clip * (along - self.clip / 2) / noise**2
        self.scores[client] = self.scores.get(client, 0.0) + ratio
        self.visits[client] = self.visits.get(client, 0) + 1

    def begin_evaluation(self, weights: Tensor) -> Evaluated:
        if self.fresh:  # the first of a round is the server's model
            self.released, self.fresh = weights.clone(), False
        return super().begin_evaluation(weights)


def plant(hop: Hop, change: Tensor) -> UploadAndMemory:
    hop.weights.copy_(hop.start + change)
    return {}, {}


def project(change: Tensor, direction: Tensor, clip: float) -> tuple[float, float]:
    """How far a change goes in a direction, and the standard deviation of its coordinates in all others."""
    along = float(change.double() @ direction.double())
    rest = change.double() - along * direction.double()
    return along, max(float(rest.norm()) / len(change) ** 0.5, 1e-6 * clip)


def reader_scores(seen: Witness, canaries: Sequence[int], secret: bool) -> list[float]:
    """Half of the canaries are in, so that the mean tells what one in adds for each time it took part."""
    assert seen.first is not None
    assert seen.released is not None
    change = (seen.released - seen.first)[: seen.size].double()
    along = np.array([float(change @ seen.direction(client).double()) for client in canaries])
    times = np.array([1 if secret else seen.visits[client] for client in canaries], dtype=float)
    each = 2 * along.mean() / times.mean()
    return [float(score) for score in each * times * (along - each * times / 2)]


def p_value(right: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """The probability of so many right guesses or more, at most, if epsilon were true."""
    from scipy.stats import binom

    chance = 1 / (1 + np.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, chance))
    below = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, chance))
    slack = float((below / np.arange(1, right + 1)).max()) if right else 0.0
    return min(1.0, tail + 2 * canaries * delta * slack)


def lower_bound(scores: Sequence[float], present: Sequence[bool], delta: float, confidence: float = 0.95) -> float:
    """The largest epsilon that is refuted: a canary is guessed to be in if its score is above 0, sure if far from it.

    How many are guessed is not chosen by the outcome: every share is tried, and pays for the others.
    """
    order = np.argsort(-np.abs(np.asarray(scores)), kind="stable")
    right = (np.asarray(scores) > 0)[order] == np.asarray(present)[order]
    level = (1 - confidence) / len(SHARES)
    bounds = [0.0]
    for share in SHARES:
        guesses = max(1, int(share * len(order)))
        hits = int(right[:guesses].sum())
        found = least(lambda eps: eps > 50 or p_value(hits, guesses, len(order), eps, delta) > level, digits=1e-3)  # noqa: B023
        bounds.append(found)
    return max(bounds)


def findings(found: Audit) -> TextTable:
    """What either attacker could prove, beside what was promised."""
    views = [("the successor in a chain", found.successor, found.protects_from_successor)]
    views.append(("the reader of the final model", found.reader, True))
    rows = []
    for name, bound, protected in views:
        verdict = "not protected" if not protected else "BROKEN" if bound > found.claimed else "not broken"
        rows.append([name, f"{found.claimed:.3g}" if protected else "-", f"{bound:.3g}", verdict])
    caption = f"{found.canaries} canaries; lower bounds hold with 95 % confidence each"
    return TextTable(["attacker", "promised epsilon", "epsilon is at least", "the promise"], rows, caption=caption)


def main() -> int:
    given = dict(word.split("=", 1) for word in sys.argv[1:])
    found = audit(resolve({"dp_clip_norm": 1.0, **given}))
    print_table(make_console(), findings(found))
    return int(found.broken)


if __name__ == "__main__":
    sys.exit(main())
