"""Whatever decides a result is vouched for: it is found as it was written, or made anew, or the run says no."""

import contextlib
import json
import random
import re
import shutil
import warnings

import pytest

import fedseq
from fedseq.basics.errors import FedSeqError
from fedseq.basics.stopping import Interrupted
from fedseq.cli import main
from fedseq.training.reporter import Quiet
from fedseq.using.predict import evaluate_run, predict_run

SHORT = {
    "dataset": "digits", "algorithm": "fedseq", "pretrain_epochs": 1, "num_clients": 20, "rounds": 3,
    "engine": "serial", "checkpoint_every": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    return fedseq.run(SHORT, tmp_path_factory.mktemp("three") / "run").folder


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """What every continuation by one round has to end with."""
    return files_of(fedseq.run({**SHORT, "rounds": 4}, tmp_path_factory.mktemp("four") / "run").folder)


@pytest.fixture
def run(three, tmp_path):
    return shutil.copytree(three, tmp_path / "run")


def files_of(folder):
    return {name: (folder / name).read_bytes() for name in ("metrics.jsonl", "weights.safetensors")}


def flipped(content: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << dice.randrange(8)]) + content[at + 1 :]


@pytest.mark.parametrize(("option", "value"), [("lr", 0.2), ("seed", 7), ("local_epochs", 2), ("batch_size", 3)])
def test_an_edited_config_does_not_resume_into_another_model(run, option, value, capsys):
    path = run / "config.yaml"
    path.write_text(re.sub(rf"^{option}: .*$", f"{option}: {value}", path.read_text(), flags=re.M))
    before = {each: each.read_bytes() for each in run.rglob("*") if each.is_file()}
    assert main(["resume", str(run), "--rounds", "4"]) == 2
    said = capsys.readouterr().err
    assert f"--{option.replace('_', '-')}" in said
    assert "--rounds N" in " ".join(said.split())  # how to change what may change
    assert "fedseq run" in " ".join(said.split())  # and the rest
    assert before == {each: each.read_bytes() for each in run.rglob("*") if each.is_file()}
    with pytest.raises(FedSeqError, match="was changed since the run began"):
        evaluate_run(run)


def test_what_may_change_may_be_edited(run, four):
    path = run / "config.yaml"
    path.write_text(path.read_text().replace("rounds: 3", "rounds: 4"))
    fedseq.resume(run)
    assert files_of(run) == four


@pytest.mark.parametrize("left", [0, 100, 0.5, -1])
def test_a_cut_metrics_file_is_never_padded(run, four, left):
    """Cut behind the checkpoint before the last, the run goes on from there; cut deeper, it says no."""
    content = (run / "metrics.jsonl").read_bytes()
    lines = content.splitlines(keepends=True)
    length = int(left * len(content)) if isinstance(left, float) else left % len(content)
    (run / "metrics.jsonl").write_bytes(content[:length])
    deep = length < len(lines[0] + lines[1])
    refused = pytest.raises(FedSeqError, match=r"every checkpoint.*metrics\.jsonl")
    with (
        pytest.warns(UserWarning, match=r"metrics\.jsonl does not begin"),
        refused if deep else contextlib.nullcontext(),
    ):
        fedseq.resume(run, rounds=4)
    assert (run / "metrics.jsonl").read_bytes() == (content[:length] if deep else four["metrics.jsonl"])


def test_lines_that_no_checkpoint_covers_may_be_anything(run, four):
    for name in ("metrics.jsonl", "timing.jsonl"):
        with (run / name).open("ab") as file:
            file.write(b"\x00\x00\xff{half a li\n\n")
    fedseq.resume(run, rounds=4)
    assert files_of(run) == four
    (run / "timing.jsonl").unlink()  # decides nothing
    assert fedseq.resume(run, rounds=5).rounds == 5


def test_a_flipped_bit_in_the_model_is_noticed_by_whoever_reads_it_and_healed_by_resume(run, tmp_path):
    path = run / "weights.safetensors"
    whole = path.read_bytes()
    dice = random.Random(0)
    for _ in range(24):
        path.write_bytes(flipped(whole, dice))
        for read in (evaluate_run, fedseq.load_model, lambda folder: predict_run(folder, tmp_path / "unused")):
            with pytest.raises(FedSeqError, match="not what the run wrote"):
                read(run)
        with pytest.raises(FedSeqError, match="not what the run wrote"):
            fedseq.read_run(run).weights()
    fedseq.resume(run)
    assert path.read_bytes() == whole
    assert evaluate_run(run)[0].accuracy == fedseq.read_run(run).metrics[-1]["accuracy"]


def test_checksums_are_such_as_sha256sum_reads(run):
    lines = (run / "SHA256SUMS").read_text().splitlines()
    assert [line.split("  ")[1] for line in lines] == [
        "config.yaml", "environment.json", "clients.json", "superclients.json", "model.json", "metrics.jsonl",
        "timing.jsonl", "weights.safetensors",
    ]  # fmt: skip
    (run / "SHA256SUMS").write_text("\x00")
    assert fedseq.resume(run).rounds == 3
    assert (run / "SHA256SUMS").read_text().splitlines() == lines
    (run / "SHA256SUMS").unlink()  # a model that was copied without them can still be used
    evaluate_run(run)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\x00", b'{"superclients": [[0, 1]]}', None])
def test_other_superclients_are_refused_every_time(run, content):
    path = run / "superclients.json"
    swapped = json.dumps({"superclients": list(reversed(json.loads(path.read_text())["superclients"]))}).encode()
    path.write_bytes(swapped if content is None else content)
    for _ in range(2):
        with (
            pytest.warns(UserWarning, match=r"superclients\.json"),
            pytest.raises(FedSeqError, match=r"superclients\.json is not what was written"),
        ):
            fedseq.resume(run, rounds=4)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"data": "0", "examples": [1]}', None])
def test_who_holds_what_follows_from_the_data_and_is_written_again(run, four, content):
    path = run / "clients.json"
    whole = path.read_bytes()
    path.write_bytes(content) if content is not None else path.unlink()
    fedseq.resume(run, rounds=4)
    assert path.read_bytes() == whole
    assert files_of(run) == four


class StopBeforeRounds(Quiet):
    def begin(self, config, folder, round_):
        raise KeyboardInterrupt


@pytest.mark.slow
def test_damaged_pretraining_is_made_anew(tmp_path):
    """Pre-training of two approximators ends as if nothing had happened, wherever a bit is flipped or a file is cut."""
    options = {**SHORT, "rounds": 1, "approximator": "classifier-last", "grouping_metric": "cosine"}
    whole = fedseq.run(options, tmp_path / "whole").folder
    groups = (whole / "superclients.json").read_bytes()
    dice = random.Random(1)
    files = sorted(path.relative_to(whole) for path in (whole / "pretraining").rglob("*.npy"))
    assert len(files) == 4
    for number, name in enumerate([*files] * 6):
        again = tmp_path / f"again{number}"
        again.mkdir()
        shutil.copytree(whole / "pretraining", again / "pretraining")
        content = (again / name).read_bytes()
        content = flipped(content, dice) if number % 3 else content[: dice.randrange(len(content))]
        if number % 6 == 1:  # in the head of the file
            content = flipped(content[:128], dice) + content[128:]
        (again / name).write_bytes(content)
        assert fedseq.run(options, again).finished
        assert (again / "superclients.json").read_bytes() == groups, name


def test_groups_that_no_checkpoint_vouches_for_are_formed_again(tmp_path, three):
    """Killed between grouping and the first checkpoint: what the file says then is not believed."""
    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        fedseq.run(SHORT, folder, reporter=StopBeforeRounds())
    shutil.rmtree(folder / "checkpoints")
    (folder / "superclients.json").write_text('{"superclients": [[0, 1]]}')
    fedseq.resume(folder)
    assert files_of(folder) == files_of(three)


def test_damage_anywhere_is_healed_or_refused_and_never_a_traceback(three, four, tmp_path, capsys):
    """Every file of a run folder, flipped or cut; what decides nothing may be anything."""
    dice = random.Random(2)
    names = sorted(path.relative_to(three) for path in three.rglob("*") if path.is_file() and path.stat().st_size)
    for number, name in enumerate([*names] * 2):
        folder = shutil.copytree(three, tmp_path / str(number))
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(flipped(content, dice) if number % 2 else content[: dice.randrange(len(content))])
        with warnings.catch_warnings(action="ignore"):
            code = main(["resume", str(folder), "--rounds", "4", "--engine", "serial"])
        said = capsys.readouterr()
        assert code in (0, 2), (name, said.err)
        assert "Traceback" not in said.err, name
        if code == 0:
            assert files_of(folder) == four, name
