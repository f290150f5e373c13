"""Every file of a finished, an unfinished and a published run, damaged in every way, and read by every command.

What a command shows is compared with what it shows of a pristine copy in the same place: it may be the same, or the
damaged file is named; other numbers without a word are a failure. A run beside it is always shown as it is.
"""

import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedseq
from fedseq.cli import main
from fedseq.runs.folder import AT_THE_END, RunFolder

from .harness import some, undisturbed

KINDS: dict[str, Callable[[bytes, int, random.Random], bytes | None]] = {
    "flip": lambda content, at, dice: content[:at] + bytes([content[at] ^ 1 << dice.randrange(8)]) + content[at + 1 :],
    "digit": lambda content, at, dice: content[:at] + re.sub(rb"[0-8]", _next, content[at:], count=1),
    "doubled line": lambda content, at, dice: content[: content.find(b"\n", at) + 1] + content[_line(content, at) :],
    "cut": lambda content, at, dice: content[:at],
    "empty": lambda content, at, dice: b"",
    "garbage": lambda content, at, dice: content[:at] + dice.randbytes(min(64, len(content) - at)) + content[at + 64 :],
    "zeros": lambda content, at, dice: content[:at] + bytes(len(content) - at),
    "gone": lambda content, at, dice: None,
    "folder": lambda content, at, dice: None,
}
LOOKS = (
    "ls runs", "compare runs --csv", "compare runs --markdown", "report runs --force",
    "publish runs/hurt --to results",
)  # fmt: skip
USES = (
    "evaluate runs/hurt", "predict runs/hurt new.npy", "export runs/hurt --format torchscript --out model.pt --force",
)  # fmt: skip


def _next(digit: re.Match[bytes]) -> bytes:
    return b"%d" % (int(digit[0]) + 1)


def _line(content: bytes, at: int) -> int:
    """Where the line begins that this place is in."""
    return content.rfind(b"\n", 0, at) + 1


def kept_as(kind: str) -> Path:
    """A folder of this kind, to be copied."""
    algorithm = "scaffold" if kind == "finished" else "fedseq+feddyn"
    place = Path("pristine") / kind
    if kind == "published":
        shutil.copytree(undisturbed(algorithm), place / "hurt")
        assert main(["publish", str(place / "hurt"), "--to", str(place / "results")]) == 0
        return place / "results" / "hurt"
    shutil.copytree(undisturbed(algorithm), place)
    if kind == "unfinished":
        files = RunFolder(place)
        files.weights.unlink()
        sums = (place / "SHA256SUMS").read_text().splitlines(keepends=True)
        (place / "SHA256SUMS").write_text("".join(line for line in sums if line.split()[1] not in AT_THE_END))
        files.write_config(replace(files.read_config(), rounds=9))
        assert not fedseq.read_run(place).finished
    return place


def hurt(folder: Path, dice: random.Random) -> tuple[str, str]:
    """Which file was damaged, and how."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    by_kind: dict[tuple[Path, str], list[Path]] = {}
    for path in files:  # so that a hundred files of memory do not crowd out the others
        by_kind.setdefault((path.parent, path.name if path.parent == folder else path.suffix), []).append(path)
    while True:
        path = dice.choice(by_kind[dice.choice(sorted(by_kind))])
        content, kind = path.read_bytes(), dice.choice(sorted(KINDS))
        damaged = KINDS[kind](content, dice.randrange(len(content)), dice)
        if damaged != content:
            break
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif damaged is not None:
        path.write_bytes(damaged)
    return path.name, kind


def shown(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """The exit code, what is shown or written, and all words."""
    capsys.readouterr()
    shutil.rmtree("results", ignore_errors=True)
    code = main(command.split())
    said = capsys.readouterr()
    written = ""
    if command.startswith("report") and code == 0:
        written = Path("report.html").read_text()
    if command.startswith("publish") and code == 0:
        written = json.dumps({path.name: path.read_text() for path in sorted(Path("results/hurt").iterdir())})
    return code, said.out + written, said.out + said.err


@pytest.mark.timeout(36000)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["finished", "unfinished", "published"])
def test_no_other_numbers(
    kind: str, dice: random.Random, counts: "Counter[str]", capsys: pytest.CaptureFixture[str]
) -> None:
    np.save("new.npy", np.zeros((1, 1, 8, 8), np.uint8))
    pristine = kept_as(kind)
    shutil.copytree(undisturbed("fedavg"), "runs/good")
    shutil.copytree(pristine, "runs/hurt")
    expected = {command: shown(command, capsys) for command in (*LOOKS, *USES)}
    for number in range(some(350)):
        shutil.rmtree("runs/hurt")
        shutil.copytree(pristine, "runs/hurt")
        name, how = hurt(Path("runs/hurt"), dice)
        counts["damages"] += 1
        for command in (*LOOKS, dice.choice(USES)):
            code, output, words = shown(command, capsys)
            what = (number, name, how, command, words[:2000])
            assert code in (0, 2), what
            assert "Traceback" not in words, what
            if command in LOOKS[:3]:
                assert "fedavg" in output, what  # the run beside it
            if (code, output) == expected[command][:2]:
                counts["reads as of the pristine copy"] += 1
            elif code == 2:
                assert "fedseq: error: " in words, what
                counts["reads refused by a sentence"] += 1
            else:
                told = " ".join(words.split())
                assert name in told or "SHA256SUMS" in told or "unreadable" in told, what
                counts["reads that name the damage and show the run beside it"] += 1
