"""What a process that works for another one asks of the system."""

import ctypes
import os
import signal
import sys


def end_with_parent(parent: int, number: signal.Signals) -> bool:
    """Be sent this signal when the parent dies, however it does. False if it has died already.

    Linux does that; elsewhere a process that was killed leaves its workers behind.
    """
    if sys.platform.startswith("linux"):
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, number)
    return os.getppid() == parent
