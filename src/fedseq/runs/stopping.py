"""Ctrl-C and SIGTERM: a run is asked to save and stop."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """Ctrl-C or SIGTERM: the run was saved at its last complete round."""


@contextlib.contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C or SIGTERM asks the loop to save and stop; a second one is obeyed at once."""
    requested = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield requested.is_set
        return

    def request(number: int, frame: FrameType | None) -> None:
        if requested.is_set():
            raise KeyboardInterrupt
        requested.set()

    before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requested.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
