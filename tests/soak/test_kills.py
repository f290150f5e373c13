"""Killed fifty times and more, anywhere, and continued: the same bytes."""

import itertools
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

import fedseq

from .harness import OPTIONS, Command, expected, flags, result, some

KILLS_A_RUN = 6
ENGINES = {"serial": [], "processes": ["--workers", "2"]}


@pytest.mark.timeout(36000)
def test_killed(dice: random.Random, counts: "Counter[str]") -> None:
    """At any time that a whole run takes, from its first moment on."""
    Command("--version").end()  # so that the first run's time holds no imports
    for number, algorithm in enumerate(itertools.cycle(OPTIONS)):
        if counts["SIGKILLs"] >= some(60):
            break
        folder, engine = Path(f"run-{number}"), dice.choice(sorted(ENGINES))
        words = [*flags(algorithm, 12), "--engine", engine, *ENGINES[engine]]
        begun = time.monotonic()
        assert Command("run", *words, "--out", f"whole-{number}").end() == (0, "")
        whole = time.monotonic() - begun
        for _ in range(KILLS_A_RUN):
            process = _go_on(folder, words)
            moment = time.monotonic() + whole * dice.random()
            while process.running and time.monotonic() < moment:
                time.sleep(0.001)
            if process.running:
                os.kill(process.pid, signal.SIGKILL)
                counts["SIGKILLs"] += 1
            process.end()
        code, errors = _go_on(folder, words).end()
        assert code == 0, errors
        assert fedseq.read_run(folder).finished
        assert result(folder) == result(Path(f"whole-{number}")) == expected(algorithm, 12)
        counts[f"runs with equal bytes ({engine})"] += 1


def _go_on(folder: Path, words: list[str]) -> Command:
    """As a user does: continue it, or begin if nothing was begun."""
    begun = (folder / "config.yaml").exists()
    return Command("resume", folder) if begun else Command("run", *words, "--out", folder)
