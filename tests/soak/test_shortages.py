"""A full disk, too few open files, workers that hang: a message or nothing, and afterwards the same bytes."""

import os
import random
import resource
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from .harness import OPTIONS, ROUNDS, Command, call, expected, flags, result, some, wait_for

Capture = pytest.CaptureFixture[str]


def finish(folder: Path, algorithm: str, counts: "Counter[str]", capsys: Capture, rounds: int = ROUNDS) -> None:
    """What a user does next, once there is room again."""
    begun = (folder / "config.yaml").exists()
    words = ["resume", str(folder)] if begun else ["run", *flags(algorithm, rounds), "--out", str(folder)]
    code, errors = call([*words, "--engine", "serial"], capsys, seconds=300)
    assert code == 0, errors
    assert result(folder) == expected(algorithm, rounds)
    counts["equal bytes"] += 1


@pytest.mark.timeout(36000)
@pytest.mark.parametrize(
    ("what", "least", "most"), [(resource.RLIMIT_FSIZE, 0, 120_000), (resource.RLIMIT_NOFILE, 10, 60)],
    ids=["full disk", "too few open files"],
)  # fmt: skip
def test_short_of(
    what: int, least: int, most: int, dice: random.Random, counts: "Counter[str]", capsys: Capture
) -> None:
    for number in range(some(40)):
        algorithm, folder = dice.choice(sorted(OPTIONS)), Path(f"run-{number}")
        limit = dice.randint(least, most)
        code, errors = Command("run", *flags(algorithm), "--out", folder, limit=(what, limit)).end()
        assert code in (0, 1, 2), (limit, errors)
        assert "Traceback" not in errors, (limit, errors)
        counts["ended with a message" if code else "got by"] += 1
        finish(folder, algorithm, counts, capsys)


@pytest.mark.timeout(36000)
def test_workers_that_hang(dice: random.Random, counts: "Counter[str]", capsys: Capture) -> None:
    """Stopped at any time, and replaced after a while."""
    for number in range(some(6)):
        algorithm, folder = dice.choice(sorted(OPTIONS)), Path(f"run-{number}")
        process = Command("run", *flags(algorithm, 30), "--out", folder, "--engine", "processes", "--workers", "2")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_for(lambda process=process, children=children: not process.running or children.read_text())
        time.sleep(dice.random() / 2)
        workers = children.read_text().split() if process.running else []
        for worker in dice.sample(workers, min(len(workers), dice.randint(1, 2))):
            os.kill(int(worker), signal.SIGSTOP)
            counts["stopped workers"] += 1
        code, errors = process.end()
        assert code == 0, errors
        finish(folder, algorithm, counts, capsys, rounds=30)
