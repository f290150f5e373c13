"""How much of this machine we may use."""

import os


def usable_cores() -> int:
    """Cores that this process may run on, which in a container can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
