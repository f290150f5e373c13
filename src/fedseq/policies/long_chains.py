"""Long chains: several superclients that a round draws are trained as one, in the first rounds or in all."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedseq.training.jobs import Job, chain_hops
from fedseq.training.policy import Plan, Policy


@dataclass(frozen=True)
class LongChains(Policy):
    name = "long chains"
    together: int  # superclients
    rounds: int | None  # None: all
    passes: int  # over a chain's clients
    seed: int

    def plan(self, plan: Plan, state: Any) -> Plan:
        if self.rounds is not None and plan.round > self.rounds:
            return plan
        parts = [plan.jobs[first : first + self.together] for first in range(0, len(plan.jobs), self.together)]
        jobs = [replace(self._joined(part), index=index) for index, part in enumerate(parts)]
        return replace(plan, jobs=jobs)

    def _joined(self, jobs: Sequence[Job]) -> Job:
        """One chain of several, the same in whichever order they were drawn."""
        clients = sorted({client for job in jobs for client, _ in job.hops})
        if len(jobs) == 1:
            return jobs[0]
        hops = chain_hops(clients, self.passes, self.seed, jobs[0].round)
        memory = {client: kept for job in jobs for client, kept in job.memory.items()}
        return replace(jobs[0], hops=hops, memory=memory)
