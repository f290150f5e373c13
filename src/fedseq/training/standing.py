"""The second check of the gate: a client's visits must do to the public exemplars what its first one promised.

A change of one length can be a good visit, its opposite, or a visit to examples with false labels; their size is the
same. What differs is what they do to the exemplars, class by class, which the server can see:

- A client's first visit is its **claim**: the classes whose loss it lowers, in proportion. Under this check every
  client is visited once from the initial model before the first round, each alone.
- **gained**: how much a later visit lowers the exemplars' loss of the claimed classes. **moved**: how much one plain
  gradient step of that length lowers the loss that it is a step on, |change|^2 / (learning rate * steps). An honest
  visit gains a good part of it. Its opposite loses as much; one that is stretched, or leads away from other classes
  than it claims, gains little for its length.
- **lead**: exemplars of the class that the client claims most, and of the three others that its visit pulls most to
  it, are all labelled as that class, and the change is compared with a step on each: the cosine with that of the class
  itself, less the best of the others. Who shows pictures of a 7 as a 2 changes the model as a 7 labelled 2 would, from
  the first visit on. It counts as far as the client claims that class, as its others blur the comparison, and a visit
  as much as there is to learn, by the exemplars' loss of the class. What a client says of its own loss is not listened
  to.

A visit counts unless it undoes the claim, or the client's visits so far, of which older ones count less, gain far less
for their length than others' do, or look more like another class. Refused visits are part of a client's standing too:
who is refused once is looked at again the next time, and comes back if it behaves.
"""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

REMEMBERED = 0.9  # weight of a client's standing against its next visit
REMEMBERED_LEAD = 0.98  # early visits tell more of it: later the model knows the exemplars, and differences are small
LEAST_GAIN = 0.35  # of the median efficiency
LEAST_LEAD = -0.015  # a difference of cosines: classes that look alike, and few exemplars of each, make it uncertain
RIVALS = 3  # classes that a change is compared with
BENEFIT = 0.5  # of the doubt: so many median visits are added to what a client is judged by
NOTHING_LOST = 1e-12


class Visit(NamedTuple):
    gained: float
    moved: float
    lead: float
    weight: float  # of the lead


class Standing(NamedTuple):
    """What is known of a client."""

    claim: tuple[float, ...]  # share of each class
    gained: float = 0.0
    moved: float = 0.0
    lead: float = 0.0
    weight: float = 0.0

    @property
    def claimed_most(self) -> int:
        return max(range(len(self.claim)), key=self.claim.__getitem__)

    def after(self, visit: Visit) -> "Standing":
        return Standing(
            self.claim,
            REMEMBERED * self.gained + visit.gained,
            REMEMBERED * self.moved + visit.moved,
            REMEMBERED_LEAD * self.lead + visit.weight * visit.lead,
            REMEMBERED_LEAD * self.weight + visit.weight,
        )


class Usual(NamedTuple):
    """Medians over the visits that were accepted lately."""

    efficiency: float  # gained / moved
    moved: float


def usual(visits: Sequence[Visit]) -> Usual | None:
    """None before there is any visit to compare with."""
    if not visits:
        return None
    return Usual(
        max(median(visit.gained / max(visit.moved, NOTHING_LOST) for visit in visits), 0.0),
        median(visit.moved for visit in visits),
    )


def claim(before: Sequence[float], after: Sequence[float]) -> tuple[float, ...]:
    """The classes that a visit helped, in proportion to how much; all alike where it helped none."""
    helped = [max(old - new, 0.0) for old, new in zip(before, after, strict=True)]
    total = sum(helped)
    return tuple(part / total for part in helped) if total > 0 else (1 / len(helped),) * len(helped)


def rivals(label: int, pulled: Sequence[float]) -> list[int]:
    """The other classes whose exemplars a visit pulled most towards that label; none without exemplars (exactly 0)."""
    others = [other for other, pull in enumerate(pulled) if other != label and pull != 0]
    return sorted(others, key=lambda other: -pulled[other])[:RIVALS]


def measure(
    known: Standing, before: Sequence[float], after: Sequence[float], length: float, rate: float, lead: float
) -> Visit:
    """`before` and `after` are losses by class, `length` is the change's, `rate` the learning rate times the steps."""
    gained = sum(share * (old - new) for share, old, new in zip(known.claim, before, after, strict=True))
    most = known.claimed_most
    return Visit(gained, length**2 / rate, known.claim[most] * lead, before[most])


def reason_to_refuse(standing: Standing, now: Visit, others: Usual) -> str | None:
    """`standing` includes the visit `now`."""
    doubt = BENEFIT * others.moved
    if now.gained + others.efficiency * doubt < 0:
        return f"raises the loss of the classes it claims by {-now.gained:.3g}"
    efficiency = (standing.gained + others.efficiency * doubt) / max(standing.moved + doubt, NOTHING_LOST)
    if efficiency < LEAST_GAIN * others.efficiency:
        return f"gains {efficiency:.3g} for its length, and others {others.efficiency:.3g}"
    lead = standing.lead / (standing.weight + BENEFIT)
    if lead < LEAST_LEAD:
        return f"its changes look {-lead:.3g} more like another class than like class {standing.claimed_most}"
    return None
