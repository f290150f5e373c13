"""Ctrl-C, SIGTERM and a hang-up: one rule for all commands, from a command's first line to its last.

The first one stops what is under way: a run is saved at its last complete round, other work ends by KeyboardInterrupt.
A second Ctrl-C or SIGTERM ends the process at once, and with it all that it started. The rule holds also where SIGINT
was inherited as ignored, as in what a shell starts in the background. A hang-up that `nohup` has had ignored stays so.

A program that uses us as a library keeps its own handlers but for the time of a run, and is never ended by us.
"""

import atexit
import contextlib
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

INTERRUPTED = 130  # the exit code of a command that was stopped
IMPATIENT = (signal.SIGINT, signal.SIGTERM)  # a terminal that closes hangs up more than once
SAID = "fedseq: interrupted. What was saved before is intact.\n"
STANDARD_STREAMS = (0, 1, 2)


class Interrupted(Exception):  # noqa: N818 - nothing went wrong
    """The run was saved at its last complete round; the text is its folder."""


class _State:
    process = 0  # in which the rule holds
    command = False  # the process is ours
    requested = False  # to stop
    asked = False  # somebody looks at `requested`, so the first request need not be an exception


def obey() -> None:
    """From now on this process, which is a command's, follows the rule."""
    _State.process, _State.command = os.getpid(), True
    _handle(_stop)
    sys.unraisablehook = _not_dropped
    atexit.register(_handle, signal.SIG_IGN)  # the first that is registered is called last


def leave(code: int) -> None:
    """Nothing is left to do but to exit with this code, which a further signal makes sooner."""
    _handle(lambda number, frame: os._exit(code))


@contextlib.contextmanager
def heeded() -> Iterator[None]:
    """The rule holds meanwhile, if it does not hold already. Only in the main thread: Python calls handlers there."""
    if threading.current_thread() is not threading.main_thread():
        yield
    elif _State.process == os.getpid():
        if _State.requested and not _State.asked:  # when nobody looked any more
            raise KeyboardInterrupt
        yield
    else:
        before = _handle(_stop)
        _State.process, _State.command, _State.requested = os.getpid(), False, False
        try:
            yield
        finally:
            _State.process = 0
            for number, handler in before.items():
                signal.signal(number, handler)


@contextlib.contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Whether somebody has asked to stop, for work that looks often and ends by itself."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    with heeded():
        before, _State.asked = _State.asked, True
        try:
            yield lambda: _State.requested
        finally:
            _State.asked = before


def _handle(handler: "Callable[[int, FrameType | None], None] | signal.Handlers") -> dict[int, "signal._HANDLER"]:
    """Handle all of them so. Returns how they were handled before."""
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return {number: signal.signal(number, handler) for number in numbers}


def _stop(number: int, frame: FrameType | None) -> None:
    if os.getpid() != _State.process:  # a worker that was forked this moment: its parent tells it what to do
        return
    again, _State.requested = _State.requested, True
    if number == signal.SIGHUP:
        _leave_terminal()
    if again and number not in IMPATIENT:
        return
    if _State.command and (again or _imports(frame)):
        _end_at_once()
    if again or not _State.asked:
        raise KeyboardInterrupt


def _imports(frame: FrameType | None) -> bool:
    """A library that is being loaded may drop an exception, or take it for another; and there is nothing to save."""
    while frame:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _end_at_once() -> None:
    for pid in _descendants(os.getpid()):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        if os.isatty(1):
            os.write(1, b"\x1b[?25h")  # the cursor, which a progress bar hides
        os.write(2, SAID.encode())
    os._exit(INTERRUPTED)


def _descendants(pid: int) -> list[int]:
    """On Linux. Elsewhere processes that work for us see their pipes close, and end."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - called in a signal handler: as little as may be
            with open(f"/proc/{pid}/task/{task}/children") as children:  # noqa: PTH123
                for child in map(int, children.read().split()):
                    found += [child, *_descendants(child)]
    return found


def _leave_terminal() -> None:
    """What is written to a terminal that has gone is an error, and must not keep a run from being saved."""
    for number in STANDARD_STREAMS:
        with contextlib.suppress(OSError):
            if stat.S_ISCHR(os.fstat(number).st_mode):
                os.dup2(os.open(os.devnull, os.O_RDWR), number)


def _not_dropped(problem: "sys.UnraisableHookArgs") -> None:
    """Python drops what is raised while an object is cleaned up. A KeyboardInterrupt is raised again a moment later."""
    if problem.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(problem)
        return
    _State.requested = False
    signal.signal(signal.SIGALRM, _stop)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
