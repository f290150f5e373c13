"""Processes that work for another one: how many, how they are started, and what they ask of the system."""

import ctypes
import os
import signal
import sys


def usable_cores() -> int:
    """Cores that this process may run on, which in a container can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def python(*words: str) -> list[str]:
    """The command for another process of this interpreter. It takes no module from the folder that it is started in.

    Such a folder may be anybody's. A model or rule of the user's own is still found there, when it is named.
    """
    return [sys.executable, "-P", *words]


HOLDER = "FEDSEQ_HOLDER"  # in the environment of a process: the one with which it ends


def end_with_holder() -> None:
    """Be asked to end when the process that HOLDER names ends; for a program that may be started without one, too."""
    holder = os.environ.pop(HOLDER, "")
    if holder and not end_with_parent(int(holder), signal.SIGTERM):
        sys.exit("the process that started this one has ended.")


def end_with_parent(parent: int, number: signal.Signals) -> bool:
    """Be sent this signal when the parent dies, however it does. False if it has died already.

    Linux does that; elsewhere a process that was killed leaves its workers behind.
    """
    if sys.platform.startswith("linux"):
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, number)
    return os.getppid() == parent
