"""The one rule for Ctrl-C, SIGTERM and a hang-up, in processes that hold nothing else. The commands: tests/soak."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedseq.basics.processes import python
from fedseq.basics.stopping import SAID, heeded, stop_requests
from helpers import is_running, wait_for

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
BEGIN = "import os, signal, subprocess, sys, time\nfrom fedseq.basics import stopping\nstopping.obey()\n"
SAY = "print('ready', flush=True)\n"
WAIT = f"try:\n    {SAY}    time.sleep(1000)\nexcept KeyboardInterrupt:\n    sys.exit(7)\n"
SLOW_TO_SAVE = f"""
with stopping.stop_requests() as stop_requested:
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    print(child.pid, flush=True)
    while not stop_requested():
        time.sleep(0.01)
    {SAY}    time.sleep(1000)
"""
CLEANED_UP = f"""
class Last:
    def __del__(self):
        {SAY}        time.sleep(1000)
try:
    del [Last()][0]
    time.sleep(1000)
except KeyboardInterrupt:
    sys.exit(7)
"""
SAVED = f"""
with stopping.stop_requests() as stop_requested:
    {SAY}    while not stop_requested():
        time.sleep(0.01)
    print("a line for a terminal that has gone", flush=True)
    open("saved", "w").close()
sys.exit(stopping.INTERRUPTED)
"""


def begun(code: str, *through: str, begin: str = BEGIN) -> "subprocess.Popen[str]":
    words = [*through, *python("-c", begin + code)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    _, said = process.communicate()
    return process.returncode, said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_signal_is_a_keyboard_interrupt(number: signal.Signals) -> None:
    process = begun(WAIT)
    assert line_of(process) == "ready"
    process.send_signal(number)
    assert ended(process) == (7, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_inherited_as_ignored_is_heeded_but_for_a_hang_up(number: signal.Signals) -> None:
    process = begun(WAIT, "sh", "-c", 'trap "" INT TERM HUP; exec "$@"', "sh")
    assert line_of(process) == "ready"
    process.send_signal(signal.SIGHUP)
    process.send_signal(number)
    assert ended(process) == (7, "")


def test_during_imports_it_is_a_sentence() -> None:
    """A library that drops all exceptions does not keep it."""
    Path("heavy.py").write_text(f"import time\ntry:\n    {SAY}    time.sleep(1000)\nexcept BaseException:\n    pass\n")
    process = begun("sys.path.insert(0, '.')\nimport heavy\n")
    assert line_of(process) == "ready"
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, SAID)


def test_a_second_one_ends_it_at_once_with_all_that_it_started() -> None:
    process = begun(SLOW_TO_SAVE)
    child = int(line_of(process))
    process.send_signal(signal.SIGTERM)
    assert line_of(process) == "ready"
    process.send_signal(signal.SIGHUP)  # no impatience: a terminal that closes says it twice
    process.send_signal(signal.SIGINT)
    assert ended(process) == (130, SAID)
    wait_for(lambda: not is_running(child))


def test_one_that_python_drops_comes_again() -> None:
    process = begun(CLEANED_UP)
    assert line_of(process) == "ready"
    process.send_signal(signal.SIGINT)
    assert ended(process) == (7, "")


def test_a_terminal_that_closes_does_not_keep_work_from_being_saved() -> None:
    pid, terminal = pty.fork()
    if not pid:
        os.execv(sys.executable, python("-c", BEGIN + SAVED))
    assert os.read(terminal, 100).strip() == b"ready"
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 130
    assert Path("saved").exists()


def test_once_its_work_is_done_a_signal_only_makes_it_exit_sooner() -> None:
    process = begun(f"stopping.leave(3)\n{SAY}time.sleep(1000)\n")
    assert line_of(process) == "ready"
    process.send_signal(signal.SIGTERM)
    assert ended(process) == (3, "")


def test_a_program_that_uses_us_keeps_its_handlers_and_is_not_ended() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    with stop_requests() as stop_requested:
        assert not stop_requested()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop_requested()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    with heeded(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
    assert [signal.getsignal(number) for number in numbers] == before
