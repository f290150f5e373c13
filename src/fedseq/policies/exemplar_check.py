"""The second check of the gate: a client's visits must do to the public exemplars what its first one promised.

A change of one length can be a good visit, its opposite, or a visit to examples with false labels; their size is the
same. What differs is what they do to the losses of the exemplars, class by class, which the server can see:

- A client's first visit is its **claim**: the classes whose loss it lowers, in proportion. Under this check every
  client is visited once from the initial model before the first round, each alone.
- **gained**: how much a later visit lowers the exemplars' loss of the claimed classes. **moved**: how much one plain
  gradient step of that length lowers the loss that it is a step on, |change|^2 / (learning rate * steps). An honest
  visit gains a good part of it. Its opposite loses as much; a step on false labels, or one that is stretched, or one
  away from other classes than it claims, gains little for its length.
- **surprise**: by how much the loss that the client reports is above the exemplars' of the claimed classes. False
  labels are hard to learn beside true ones. (Whoever lies about it as well is left to the other two.)

A visit counts unless it undoes the claim, or the client's visits so far, of which older ones count less, gain far less
for their length than others' do, or surprise far more. Refused visits are part of a client's standing too: who is
refused once is looked at again the next time, and comes back if it behaves.
"""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

REMEMBERED = 0.9  # weight of a client's standing against its next visit
LEAST_GAIN = 0.35  # of the median efficiency
MOST_SURPRISE = 4.0  # times the median distance from the median
SURE_SURPRISE = 0.3  # in units of the loss: less is never held against anybody
BENEFIT = 0.5  # of the doubt: so many median visits are added to what a client is judged by
NOTHING_LOST = 1e-12


class Visit(NamedTuple):
    gained: float
    moved: float
    surprise: float


class Standing(NamedTuple):
    """What is known of a client."""

    claim: tuple[float, ...]  # share of each class
    gained: float = 0.0
    moved: float = 0.0
    surprise: float = 0.0
    visits: float = 0.0

    def after(self, visit: Visit, centre: float) -> "Standing":
        return Standing(
            self.claim,
            REMEMBERED * self.gained + visit.gained,
            REMEMBERED * self.moved + visit.moved,
            REMEMBERED * self.surprise + visit.surprise - centre,
            REMEMBERED * self.visits + 1,
        )


class Usual(NamedTuple):
    """Medians over the visits that were accepted lately."""

    efficiency: float  # gained / moved
    moved: float
    surprise: float
    spread: float  # of the surprises around their median


def usual(visits: Sequence[Visit]) -> Usual | None:
    """None before there is any visit to compare with."""
    if not visits:
        return None
    centre = median(visit.surprise for visit in visits)
    return Usual(
        max(median(visit.gained / max(visit.moved, NOTHING_LOST) for visit in visits), 0.0),
        median(visit.moved for visit in visits),
        centre,
        median(abs(visit.surprise - centre) for visit in visits),
    )


def claim(before: Sequence[float], after: Sequence[float]) -> tuple[float, ...]:
    """The classes that a visit helped, in proportion to how much; all alike where it helped none."""
    helped = [max(old - new, 0.0) for old, new in zip(before, after, strict=True)]
    total = sum(helped)
    return tuple(part / total for part in helped) if total > 0 else (1 / len(helped),) * len(helped)


def measure(
    claimed: Sequence[float], before: Sequence[float], after: Sequence[float], length: float, rate: float, loss: float
) -> Visit:
    """`length` is that of the change, `rate` the learning rate times the steps, `loss` the one that was reported."""
    expected = sum(share * old for share, old in zip(claimed, before, strict=True))
    gained = sum(share * (old - new) for share, old, new in zip(claimed, before, after, strict=True))
    return Visit(gained, length**2 / rate, loss - expected)


def reason_to_refuse(standing: Standing, now: Visit, others: Usual) -> str | None:
    """`standing` includes the visit `now`."""
    doubt = BENEFIT * others.moved
    if now.gained + others.efficiency * doubt < 0:
        return f"raises the loss of the classes it claims by {-now.gained:.3g}"
    efficiency = (standing.gained + others.efficiency * doubt) / max(standing.moved + doubt, NOTHING_LOST)
    if efficiency < LEAST_GAIN * others.efficiency:
        return f"gains {efficiency:.3g} for its length, and others {others.efficiency:.3g}"
    surprise = standing.surprise / (standing.visits + BENEFIT)
    if surprise > max(MOST_SURPRISE * others.spread, SURE_SURPRISE):
        return f"its loss is {surprise:.3g} above that of the classes it claims"
    return None
