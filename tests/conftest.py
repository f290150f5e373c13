"""Every test has a folder of its own and leaves the user's cache alone. Kernels are compiled once for all of them.

What a test starts dies with the test run, also if that is killed: see `watch`.
"""

import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import watchdog
from fedseq.basics.processes import end_with_parent
from fedseq.models import kernels

COMPILED = pytest.StashKey[Path]()

EXTRAS = {"flower": "flwr", "privacy/test_accountant.py": "dp_accounting", "runs/test_notebook.py": "nbformat"}
MISSING = {path: package for path, package in EXTRAS.items() if importlib.util.find_spec(package) is None}
collect_ignore = list(MISSING)


def pytest_report_header() -> list[str]:
    return [f"tests/{path} is skipped: {package} is not installed" for path, package in MISSING.items()]


def pytest_sessionstart(session: pytest.Session) -> None:
    """Before test files are read, some of which ask for kernels, and before processes of xdist start."""
    config = session.config
    config.stash[COMPILED] = config.cache.mkdir("fedseq")
    os.environ["FEDSEQ_CACHE"] = str(config.stash[COMPILED])
    os.register_at_fork(after_in_child=_end_with_us)
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:  # in the background, under nohup: what tests start is elsewhere
            signal.signal(number, lambda *_: None)
    if not hasattr(config, "workerinput"):
        watch()
        kernels.load()
        kernels.available()


def watch() -> None:
    """A process looks whether we are there, and ends all that inherited our mark when we are not."""
    before, mark = os.environ.get(watchdog.VARIABLE), secrets.token_hex(8)
    subprocess.Popen(
        [sys.executable, watchdog.__file__, str(os.getpid()), mark], start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.environ[watchdog.VARIABLE] = f"{before}:{mark}" if before else mark  # of a test run within a test: both


def _end_with_us() -> None:
    """A process that was forked, and is no other program, shows the environment that this one had at its start."""
    end_with_parent(os.getppid(), signal.SIGKILL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that wait for other processes first: at the end, nobody would be left to compute meanwhile.

    Tests that share a federation or a cluster go to one worker of xdist (`--dist loadgroup`), which starts it once.
    """
    items.sort(key=lambda item: item.path.parent.name not in ("flower", "engines"))
    for item in items:
        for shared in {"fed", "cluster"} & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.xdist_group(shared))


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch, pytestconfig):
    monkeypatch.chdir(tmp_path)
    cache = tmp_path.with_name(f"{tmp_path.name}-cache")
    monkeypatch.setenv("FEDSEQ_CACHE", str(cache))
    monkeypatch.setenv("XDG_STATE_HOME", str(cache))
    monkeypatch.delenv("FEDSEQ_DATA", raising=False)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # no test cuts the power, and a run waits for the disk ten times
    for library in pytestconfig.stash[COMPILED].glob("kernels-*/*.so"):
        place = cache / library.parent.name
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            (place / library.name).hardlink_to(library)
        except OSError:  # on another disk
            shutil.copy2(library, place)
