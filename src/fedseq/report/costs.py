"""What a run costs beside rounds: client updates, bytes, simulated seconds and privacy.

A chain of eight clients takes eight local updates one after another, so rounds alone flatter FedSeq. Simulated time
says what a federation would wait, by the clock that the run itself used (options/clock.py): a round waits for its
slowest chain, and FedSeqInter's slots wait for each other only where they are merged. Between merges the evaluated
model needs every slot's part of the round, so the clock of a round is that of its last slot.

Clients that are estimated are pre-trained first, all at once. That is counted too: an update for each epoch of each
client, its model there and back once, and the time of the slowest.
"""

import statistics
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, NamedTuple

from fedseq.runs.reading import Details, Run
from fedseq.simulation.clock import MISSED, Clock, WhatIf

AS_RECORDED = WhatIf()


@dataclass(frozen=True)
class Axis:
    """What accuracy can be drawn over."""

    title: str
    units: Mapping[str, float] = field(default_factory=lambda: {"": 1})
    untold: str = ""  # what a run that has no place on it does not do

    def unit(self, longest: float) -> str:
        """The largest of which there are two."""
        return max(self.units, key=lambda name: self.units[name] if 2 * self.units[name] <= longest else 0)


ROUND = "round"
AXES = {  # all but rounds as in Spent
    ROUND: Axis("round"),
    "updates": Axis("client updates"),
    "bytes": Axis("bytes moved", {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}),
    "seconds": Axis(
        "simulated time", {"s": 1, "min": 60, "h": 3600, "days": 86400}, "tells how long these clients would take"
    ),
    "epsilon": Axis("epsilon", untold="promises an epsilon"),
}


class Spent(NamedTuple):
    """By the end of a round, since the beginning."""

    updates: int
    bytes: int
    seconds: float | None
    epsilon: float | None


NOTHING = Spent(0, 0, 0.0, None)


@dataclass(frozen=True)
class Costs:
    """Running totals by round, and what was spent before the first."""

    rounds: tuple[int, ...]
    updates: tuple[int, ...]
    bytes: tuple[int, ...]
    seconds: tuple[float, ...]  # empty where the folder does not tell
    epsilon: tuple[float | None, ...] = ()  # none where nothing is promised
    before: Spent = NOTHING

    @property
    def all_updates(self) -> int:
        return self.before.updates + (self.updates[-1] if self.updates else 0)

    def until(self, round_: int) -> Spent:
        """All of it, by the end of a round."""
        at = bisect_left(self.rounds, round_)
        return Spent(
            self.before.updates + self.updates[at],
            self.before.bytes + self.bytes[at],
            (self.before.seconds or 0.0) + self.seconds[at] if self.seconds else None,
            self.epsilon[at] if self.epsilon else None,
        )


def run_costs(run: Run, what_if: WhatIf = AS_RECORDED) -> Costs:
    details = run.details
    lines = run.metrics
    central = run.config.algorithm == "centralized"
    moved = [0 if central else line.get("bytes_down", 0) + line.get("bytes_up", 0) for line in lines]
    before = NOTHING
    try:
        passes = run.config.local_epochs + details.algorithm.get("extra_passes", 0)
        clock = Clock(what_if.applied(run.config), passes, _bytes_per_hop(lines, moved))
        before = _pretraining(clock, details)
        if run.published:
            seconds = [line["simulated_seconds"] for line in lines] if what_if == AS_RECORDED else []
        else:
            seconds = simulated_seconds(clock, lines, details)
    except (KeyError, IndexError, TypeError, ValueError):  # the files do not tell, or do not belong together
        seconds = []
    return Costs(
        rounds=tuple(line["round"] for line in lines),
        updates=tuple(accumulate(line.get("client_updates", 0) for line in lines)),
        bytes=tuple(accumulate(moved)),
        seconds=tuple(seconds),
        epsilon=tuple(line.get("epsilon") for line in lines),
        before=before,
    )


def _pretraining(clock: Clock, details: Details) -> Spent:
    """What it costs to estimate the clients. A visit moves as much as one of a round."""
    config, holders = clock.config, {client: count for client, count in enumerate(details.examples) if count}
    if not config.uses_estimates or details.grouped_by == "given":
        return NOTHING
    visit = replace(clock, passes=config.pretrain_epochs)
    seconds = max((visit.hop(client, count) for client, count in holders.items()), default=0.0)
    return Spent(config.pretrain_epochs * len(holders), round(clock.bytes_per_hop * len(holders)), seconds, None)


def simulated_seconds(clock: Clock, lines: Sequence[dict[str, Any]], details: Details) -> list[float]:
    """The clock at the end of each round."""
    units = len(details.superclients) or sum(count > 0 for count in details.examples)
    merge_every = details.algorithm.get("merge_every", 1) or max(1, units)
    examples, clocks = details.examples, []
    slots = [0.0] * max((len(line["drawn"]) for line in lines), default=0)
    for line in lines:
        slot_of = {unit: slot for slot, unit in enumerate(line["drawn"])}
        for unit, chain in zip(line["units"], line["clients"], strict=True):
            slots[slot_of[unit]] += sum(clock.hop(client, examples[client]) for client in chain)
        for hop in line["skipped"]:
            client = hop["client"]
            slots[slot_of[hop["unit"]]] += clock.failed_hop(client, examples[client], hop["reason"])
        clocks.append(max(slots, default=0.0))
        if line["round"] % merge_every == 0:
            slots = [clocks[-1]] * len(slots)
    return clocks


def _bytes_per_hop(lines: Sequence[dict[str, Any]], moved: Sequence[int]) -> float:
    """The same for every hop of a run. Rounds in which a real client did not answer moved less, so the most counts."""
    found = [0.0]
    for line, count in zip(lines, moved, strict=True):
        refused = sum(hop.get("reason") not in MISSED for hop in line.get("skipped") or ())
        found.append(count / max(1, line.get("client_updates", 0) + refused))
    return max(found)


def mean_spent(runs: Sequence[Run], rounds: Sequence[int], axis: str, what_if: WhatIf = AS_RECORDED) -> Sequence[float]:
    """Where these rounds are on an axis, in the mean of the runs; nothing where one of them does not tell."""
    if axis == ROUND:
        return rounds
    costs = [run_costs(run, what_if) for run in runs]
    spent = [[getattr(cost.until(round_), axis) for cost in costs] for round_ in rounds]
    return [] if any(None in each for each in spent) else [statistics.fmean(each) for each in spent]


def describe_clients(runs: Sequence[Run], what_if: WhatIf = AS_RECORDED) -> str:
    """Who the clock simulates."""
    options = {
        (config.client_speed, config.speed_spread, config.bandwidth)
        for config in (what_if.applied(run.config) for run in runs)
    }
    if len(options) != 1:
        return "as each run's own options say"
    ((speed, spread, bandwidth),) = options
    return f"{speed:g} steps/s per client, lognormal spread {spread:g}, {human_bytes(bandwidth)}/s"


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
