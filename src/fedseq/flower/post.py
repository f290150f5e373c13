"""Messages under way: sent, answered, or given up at their deadline."""

import time
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid
from httpx import HTTPError

from fedseq.flower.messages import Refused

Key = TypeVar("Key", bound=Hashable)
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.5  # seconds between two looks for answers

LONGEST_REASON = 200  # of a text that comes from a client
APP_FAILED = 2
# What Flower's error codes mean here.
_ERRORS = {
    1: "its app could not be loaded", APP_FAILED: "its app failed", 3: "no answer within its deadline",
    4: "no answer within its deadline", 5: "its node is not connected", 7: "its app is not the one of this run",
    8: "its app crashed",
}  # fmt: skip


class Post(Generic[Key]):
    def __init__(self, grid: Grid):
        self.grid = grid
        self.waiting: dict[str, tuple[Key, float]] = {}  # message id: whom for, and until when
        self.unsent: list[Key] = []
        self.pause = SHORTEST_PAUSE

    def send(self, key: Key, message: Message, seconds: float) -> None:
        sent = list(self.grid.push_messages([message]))
        if sent and sent[0]:
            self.waiting[sent[0]] = (key, time.monotonic() + seconds)
            self.pause = SHORTEST_PAUSE
        else:
            self.unsent.append(key)

    def collect(self) -> Iterator[tuple[Key, RecordDict | Refused]]:
        """Answers that have come, and refusals for those that did not in time. Waits a little if there are none."""
        found = list(self._look())
        if not found and self.waiting:
            time.sleep(self.pause)
            self.pause = min(LONGEST_PAUSE, self.pause * 1.5)
        yield from found

    def _look(self) -> Iterator[tuple[Key, RecordDict | Refused]]:
        for key in self.unsent:
            yield key, Refused("the message could not be sent")
        self.unsent = []
        for message_id, (key, until) in list(self.waiting.items()):
            answer = self._pull(message_id)
            if answer is None and time.monotonic() > until:
                answer = Refused("no answer within its deadline")
            if answer is not None:
                del self.waiting[message_id]
                yield key, answer

    def _pull(self, message_id: str) -> RecordDict | Refused | None:
        """Message by message: one that can't be read is its sender's loss alone."""
        try:
            found = list(self.grid.pull_messages([message_id]))
            if not found:
                return None
            return Refused(_meaning(found[0].error)) if found[0].has_error() else found[0].content
        except HTTPError:  # no client's fault
            raise
        except Exception as error:  # noqa: BLE001 - whatever a client's bytes make Flower raise
            return Refused(f"its answer can't be read ({type(error).__name__})")


def _meaning(error: Error) -> str:
    """With the last words of an app that failed, which is where Python puts the error."""
    meaning = _ERRORS.get(error.code, f"Flower's error {error.code}")
    if error.code != APP_FAILED or not error.reason:
        return meaning
    lines = [line.strip() for line in error.reason.replace("\\n", "\n").splitlines() if line.strip(" '\">")]
    last = "".join(letter if letter.isprintable() else " " for letter in lines[-1]) if lines else ""
    return f"{meaning}: {last[-LONGEST_REASON:]}"
