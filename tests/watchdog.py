"""Ends whatever a test run has started, when that is gone, however it went: also processes that it detached.

Run by conftest.py as `python tests/watchdog.py PID MARK`, in a process of its own that does not carry the mark.
"""

import contextlib
import os
import signal
import sys
import time

from helpers import is_running, marked

VARIABLE = "FEDSEQ_TESTS"  # in the environment of all that a test run starts


def main(pid: int, mark: str) -> None:
    while is_running(pid) and os.getppid() == pid:
        time.sleep(0.2)
    while left := marked(VARIABLE, mark):
        for number in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        time.sleep(0.05)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
