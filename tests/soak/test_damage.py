"""Every file of a run folder, damaged in every way: the same bytes in the end or a clear error, and never a traceback.

A damaged number of rounds is the one thing that may change what comes out, as a user may change it too: it is then
compared with a run of that many rounds.
"""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import fedseq
from fedseq.basics.errors import FedSeqError

from .harness import OPTIONS, ROUNDS, SHARE, call, expected, options, result, some, undisturbed

HALF = 3  # rounds of a run that was stopped
KINDS: dict[str, Callable[[bytes, int, random.Random], bytes]] = {
    "flip": lambda content, at, dice: content[:at] + bytes([content[at] ^ 1 << dice.randrange(8)]) + content[at + 1 :],
    "cut": lambda content, at, dice: content[:at],
    "empty": lambda content, at, dice: b"",
    "garbage": lambda content, at, dice: content[:at] + dice.randbytes(min(64, len(content) - at)) + content[at + 64 :],
    "zeros": lambda content, at, dice: content[:at] + bytes(len(content) - at),
}


def damage(folder: Path, dice: random.Random) -> str:
    """Which file was damaged, and how."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    by_kind: dict[tuple[Path, str], list[Path]] = {}
    for path in files:  # so that a hundred files of memory do not crowd out the one config
        by_kind.setdefault((path.parent, path.suffix), []).append(path)
    path = dice.choice(by_kind[dice.choice(sorted(by_kind))])
    content, kind = path.read_bytes(), dice.choice(sorted(KINDS))
    if dice.random() < 0.1:
        path.unlink()
        return f"{path.relative_to(folder)} removed"
    path.write_bytes(KINDS[kind](content, dice.randrange(len(content)) if content else 0, dice) if content else b"\0")
    return f"{path.relative_to(folder)} {kind}"


def half_done(algorithm: str) -> Path:
    """A run that was stopped before its last rounds."""
    whole = options(algorithm)
    folder = fedseq.run({**whole, "rounds": HALF}, "half", engine="serial").folder
    for name in ("weights.safetensors", "weights-best.safetensors", "SHA256SUMS"):
        (folder / name).unlink(missing_ok=True)
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace(f"rounds: {HALF}", f"rounds: {whole['rounds']}"))
    return folder


@pytest.mark.timeout(36000)
@pytest.mark.filterwarnings("ignore:checkpoint file")
@pytest.mark.parametrize("algorithm", OPTIONS)
@pytest.mark.parametrize("finished", [False, True], ids=["half done", "finished"])
def test_damaged(
    algorithm: str, finished: bool, dice: random.Random, counts: "Counter[str]", capsys: pytest.CaptureFixture[str]
) -> None:
    intact = undisturbed(algorithm) if finished else half_done(algorithm)
    for number in range(some(80)):
        folder = Path("hurt")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(intact, folder)
        what = damage(folder, dice)
        counts["damages"] += 1
        for words in (["ls", str(folder)], ["report", str(folder), "--force"], ["evaluate", str(folder)]):
            code, errors = call(words, capsys)
            assert code in (0, 2), (number, what, words)
        if finished:
            with suppress(FedSeqError):
                assert fedseq.read_run(folder).metrics == fedseq.read_run(intact).metrics, (number, what)
        code, errors = call(["resume", str(folder), "--engine", "serial"], capsys, seconds=300)
        if code == 2:
            assert errors.splitlines()[-1].startswith("fedseq: error: "), (number, what, errors)
            counts["clear errors"] += 1
            continue
        assert code == 0, (number, what, errors)
        rounds = fedseq.read_run(folder).config.rounds
        assert result(folder) == expected(algorithm, rounds), (number, what)
        counts["equal bytes" if rounds == ROUNDS else "equal bytes of other rounds"] += 1
    assert counts["equal bytes"] or SHARE < 1


@pytest.mark.timeout(36000)
def test_damaged_weights_are_not_used(dice: random.Random, counts: "Counter[str]") -> None:
    """What `evaluate` and others would read as a model."""
    folder = Path("hurt")
    shutil.copytree(undisturbed("fedavg"), folder)
    weights = (folder / "weights.safetensors").read_bytes()
    for _ in range(some(200)):
        kind = dice.choice(sorted(KINDS))
        hurt = KINDS[kind](weights, dice.randrange(len(weights)), dice)
        (folder / "weights.safetensors").write_bytes(hurt)
        counts["damages"] += 1
        if hurt == weights:
            counts["no difference"] += 1
            continue
        with pytest.raises(FedSeqError, match=r"weights\.safetensors"):
            fedseq.load_model(folder)
        counts["clear errors"] += 1
