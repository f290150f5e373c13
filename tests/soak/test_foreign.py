"""Folders that someone made to harm: nothing outside of them changes, nothing of theirs is run, nobody waits."""

import json
import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from .harness import OPTIONS, call, some, undisturbed

CODE = "from pathlib import Path\nPath('trace').touch()\n"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, after in zip("abcdefghi", "bcdefghij", strict=True)
)
COMMANDS = (
    "ls DIR", "compare DIR", "report DIR --force", "evaluate DIR", "predict DIR new.npy", "resume DIR --rounds 3",
    "resume DIR --restart", "run DIR/config.yaml --out again", "report DIR --force --track tensorboard",
)  # fmt: skip


def pipe(path: Path, mine: Path) -> None:
    os.mkfifo(path)


def link(path: Path, mine: Path) -> None:
    path.symlink_to(mine / "thesis.txt")


def link_to_a_folder(path: Path, mine: Path) -> None:
    path.symlink_to(mine)


def endless(path: Path, mine: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path, mine: Path) -> None:
    path.mkdir()


def deep(path: Path, mine: Path) -> None:
    path.write_text("[" * 200_000)


def bomb(path: Path, mine: Path) -> None:
    path.write_text(f"{BOMB}lr: *j\n")


def large_numbers(path: Path, mine: Path) -> None:
    path.write_text(json.dumps({"round": 10**4000, "superclients": [[10**30]], "examples": [1e308] * 3}) + "\n")


HARMS = (pipe, link, link_to_a_folder, endless, folder, deep, bomb, large_numbers)


@pytest.mark.timeout(36000)
@pytest.mark.filterwarnings("ignore:checkpoint file")
def test_foreign_folders(
    dice: random.Random, counts: "Counter[str]", capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    import numpy as np

    np.save("new.npy", np.zeros((1, 1, 8, 8), np.uint8))
    mine, theirs = tmp_path / "mine", Path("theirs")
    mine.mkdir()
    (mine / "thesis.txt").write_text("three years")
    (mine / "events.out.tfevents.1").write_text("an evening")
    before = {path.name: path.read_bytes() for path in mine.iterdir()}
    for number in range(some(150)):
        algorithm = dice.choice(sorted(OPTIONS))
        for place in (theirs, Path("again")):
            shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(undisturbed(algorithm, rounds=2), theirs)
        (theirs / "__init__.py").write_text(CODE)
        if dice.random() < 0.5:
            shutil.rmtree(theirs / "checkpoints")
            (theirs / "SHA256SUMS").unlink()
        if dice.random() < 0.3:
            config = theirs / "config.yaml"
            named = f"algorithm: {algorithm}"
            config.write_text(config.read_text().replace(named, f"{named}+theirs:rule"))
            what = ["code"]
        else:
            files = [*sorted(path for path in theirs.rglob("*") if path.name != "__init__.py"), theirs / "tracking"]
            victim, harm = dice.choice(files), dice.choice(HARMS)
            shutil.rmtree(victim) if victim.is_dir() else victim.unlink(missing_ok=True)
            harm(victim, mine)
            what = [str(victim), harm.__name__]
        for command in COMMANDS:
            code, errors = call(command.replace("DIR", str(theirs)).split(), capsys, seconds=100)
            assert code in (0, 1, 2), (number, what, command, errors)
            assert "Traceback" not in errors, (number, what, command, errors)
            assert {path.name: path.read_bytes() for path in mine.iterdir()} == before, (number, what, command)
            assert not Path("trace").exists(), (number, what, command)
            counts["commands refused" if code else "commands done"] += 1
        counts["foreign folders"] += 1
