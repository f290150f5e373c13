"""Simulated trouble: clients that drop out, and clients that are too slow. Both follow from the seed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedseq.basics import seeds
from fedseq.options.config import Config
from fedseq.simulation.clock import Clock
from fedseq.training.jobs import Job, Skipped
from fedseq.training.policy import Plan, Policy


@dataclass(frozen=True)
class Failures(Policy):
    """Visits that fail are known before the round, and left out of it."""

    name = "failures"
    config: Config
    sizes: Sequence[int]  # examples of each client

    def plan(self, plan: Plan, state: Any) -> Plan:
        first = plan.jobs[0]
        # What is sent up beside the model is as large as what is sent down beside it.
        moved = 2 * sum(tensor.nbytes for tensor in (first.start, *first.message.values()))
        clock = Clock(self.config, self.config.local_epochs + first.algorithm.extra_passes, moved)
        jobs: list[Job] = []
        skipped = list(plan.skipped)
        for job in plan.jobs:
            failed = failing_hops(self.config, clock, plan.round, job.hops, self.sizes)
            skipped += [{"unit": job.unit, "client": hop.client, "reason": hop.reason} for hop in failed]
            gone = {(hop.client, hop.visit) for hop in failed}
            jobs.append(replace(job, hops=tuple(hop for hop in job.hops if hop not in gone)))
        return replace(plan, jobs=jobs, skipped=skipped)


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
