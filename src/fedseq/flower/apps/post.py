"""Messages under way: sent, answered, or given up at their deadline."""

import queue
import threading
import time
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid
from httpx import HTTPError

from fedseq.flower.apps.messages import Refused

Key = TypeVar("Key", bound=Hashable)
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.5  # seconds between two looks for an answer
LONGEST_REASON = 200  # of a text that comes from a client
GONE_EARLY = 1.0  # seconds before its deadline in which a message that is gone may just have expired
APP_FAILED, GONE = 2, 3
# What Flower's error codes mean here.
_ERRORS = {
    1: "its app could not be loaded", APP_FAILED: "its app failed",
    GONE: "no answer within its deadline", 4: "no answer within its deadline", 5: "its node is not connected",
    7: "its app is not the one of this run", 8: "its app crashed",
}  # fmt: skip


class Post(Generic[Key]):
    """Each answer is fetched by a thread of its own: one that trickles in, or never ends, holds up nobody else."""

    def __init__(self, grid: Grid):
        self.grid = grid
        self.waiting: dict[str, tuple[Key, float]] = {}  # message id: whom for, and until when
        self.unsent: list[Key] = []
        self.arrived: queue.SimpleQueue[tuple[str, RecordDict | Refused | HTTPError]] = queue.SimpleQueue()

    def send(self, key: Key, message: Message, seconds: float) -> None:
        until = time.monotonic() + seconds
        sent = list(self.grid.push_messages([message]))
        if not sent or not sent[0]:
            self.unsent.append(key)
            return
        self.waiting[sent[0]] = (key, until)
        threading.Thread(target=self._fetch, args=(sent[0], until), daemon=True, name="fedseq-fetch").start()

    def collect(self, patience: float = LONGEST_PAUSE) -> Iterator[tuple[Key, RecordDict | Refused]]:
        """What has been answered or given up by now; if it is nothing, what comes within this time."""
        for key in self.unsent:
            yield key, Refused("the message could not be sent")
        self.unsent = []
        while self.waiting:
            try:
                message_id, answer = self.arrived.get(timeout=patience)
            except queue.Empty:
                break
            patience = 0.0
            if isinstance(answer, HTTPError):
                raise answer
            if message_id in self.waiting:  # it was not given up
                yield self.waiting.pop(message_id)[0], answer
        for message_id, (key, until) in list(self.waiting.items()):
            if time.monotonic() > until:
                del self.waiting[message_id]
                yield key, Refused("no answer within its deadline")

    def _fetch(self, message_id: str, until: float) -> None:
        pause = SHORTEST_PAUSE
        while time.monotonic() < until:
            answer = self._pull(message_id, until)
            if answer is not None:
                self.arrived.put((message_id, answer))
                return
            time.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 1.5)

    def _pull(self, message_id: str, until: float) -> RecordDict | Refused | HTTPError | None:
        """Message by message: one that cannot be read is its sender's loss alone."""
        try:
            found = list(self.grid.pull_messages([message_id]))
            if not found:
                return None
            if not found[0].has_error():
                return found[0].content
            return Refused(_meaning(found[0].error, early=time.monotonic() < until - GONE_EARLY))
        except HTTPError as error:  # no client's fault
            return error
        except Exception as error:  # noqa: BLE001 - whatever a client's bytes make Flower raise
            return Refused(f"its answer cannot be read ({type(error).__name__})")


def _meaning(error: Error, early: bool) -> str:
    """With the last words of an app that failed, which is where Python puts the error.

    Our SuperLink drops an answer that is too large. If it was already being fetched, its parts are missing; if not, the
    order is dropped with it, and Flower answers as if that had expired.
    """
    if "objects are unavailable" in (error.reason or "") or (early and error.code == GONE):
        return "its answer was too large, or was cut off"
    meaning = _ERRORS.get(error.code, f"Flower's error {error.code}")
    if error.code != APP_FAILED or not error.reason:
        return meaning
    lines = [line.strip() for line in error.reason.replace("\\n", "\n").splitlines() if line.strip(" '\">")]
    last = "".join(letter if letter.isprintable() else " " for letter in lines[-1]) if lines else ""
    return f"{meaning}: {last[-LONGEST_REASON:]}"
