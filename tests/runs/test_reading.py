"""Every file of a run folder is checked where it is read; what is damaged or gone is named, other runs are shown."""

import json
import shutil
from pathlib import Path

import pytest

import fedseq
from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import decode, fits
from fedseq.cli import main
from fedseq.runs.folder import RunFolder
from fedseq.runs.manifests import manifest_digest
from fedseq.runs.reading import Broken, read, read_all, readable
from fedseq.sweep.assignments import Assignment, is_done

OPTIONS = {
    "dataset": "digits", "algorithm": "fedseq", "grouping": "random", "num_clients": 20, "rounds": 3,
    "engine": "serial", "checkpoint_every": 1,
}  # fmt: skip
FILES = ("config.yaml", "environment.json", "clients.json", "superclients.json", "metrics.jsonl", "timing.jsonl")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fedseq.run(OPTIONS, tmp_path_factory.mktemp("finished") / "run").folder


@pytest.fixture(scope="module")
def unfinished(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the run was before its last checkpoint became its end: without the model and the checksums of its end."""
    folder = shutil.copytree(finished, tmp_path_factory.mktemp("unfinished") / "run")
    (folder / "weights.safetensors").unlink()
    RunFolder(folder).expect_more()
    sums = (folder / "SHA256SUMS").read_text().splitlines(keepends=True)
    (folder / "SHA256SUMS").write_text("".join(line for line in sums if "weights" not in line))
    assert isinstance(read(folder), fedseq.Run)
    return folder


def hurt(path: Path, how: str) -> None:
    content = path.read_bytes()
    path.unlink()
    if how == "digit":
        path.write_bytes(content.replace(b"1", b"2", 1))
        assert path.read_bytes() != content
    elif how == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif how == "folder":
        path.mkdir()


@pytest.mark.parametrize("how", ["digit", "cut", "gone", "folder"])
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("state", ["finished", "unfinished"])
def test_damage_is_named_and_the_run_beside_it_is_shown(state, name, how, finished, unfinished, tmp_path, capsys):
    shutil.copytree(finished, tmp_path / "runs" / "good")
    bad = shutil.copytree(finished if state == "finished" else unfinished, tmp_path / "runs" / "bad")
    hurt(bad / name, how)
    (found,) = [one for one in read_all([bad.parent]) if isinstance(one, Broken)]
    assert found.reason.startswith(f"{bad / name} {'is gone' if how == 'gone' else 'is not what the run wrote'}") or (
        how == "folder" and str(bad / name) in found.reason
    )
    for command in (["ls"], ["compare"], ["report", "-o", str(tmp_path / "page.html")]):
        assert main([*command, str(bad.parent)]) == 0
        told = " ".join(capsys.readouterr().out.split())
        assert "unreadable" in told or "not shown" in told, command


def test_what_follows_from_a_checkpoint_is_written_anew(finished, tmp_path):
    for name in ("environment.json", "clients.json", "model.json", "timing.jsonl"):
        folder = shutil.copytree(finished, tmp_path / name)
        hurt(folder / name, "digit")
        fedseq.resume(folder)
        assert isinstance(read(folder), fedseq.Run), name
        assert (folder / "metrics.jsonl").read_bytes() == (finished / "metrics.jsonl").read_bytes()
        assert (folder / "timing.jsonl.damaged").exists() == (name == "timing.jsonl")


def test_a_sweep_does_not_take_a_damaged_model_for_done(finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "run")
    assignment = Assignment(folder, fedseq.read_run(folder).config)
    assert is_done(assignment)
    hurt(folder / "weights.safetensors", "cut")
    assert not is_done(assignment)


def test_files_of_a_length_that_no_run_has_are_refused_at_once(finished, tmp_path):
    for name, size in (("metrics.jsonl", 40 * 10**9), ("clients.json", 10**9), ("superclients.json", 10**9)):
        for sums in (True, False):
            folder = shutil.copytree(finished, tmp_path / f"{name}-{sums}")
            if not sums:
                (folder / "SHA256SUMS").unlink()
                shutil.rmtree(folder / "checkpoints")
            with (folder / name).open("r+b") as file:
                file.truncate(size)  # sparse: it takes no room
            found = read(folder)
            assert isinstance(found, Broken)
            assert f"{name} has {size / 1e6:,.0f} MB; at most" in found.reason


def test_a_line_of_zeros_is_not_read_to_its_end(finished, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "run")
    (folder / "SHA256SUMS").unlink()
    shutil.rmtree(folder / "checkpoints")
    with (folder / "metrics.jsonl").open("r+b") as file:
        file.truncate(2 * 10**9)
    found = read(folder)
    assert isinstance(found, Broken)
    assert "line 4" in found.reason


def test_one_number_of_4000_digits_ends_no_command(finished, tmp_path, capsys):
    good, bad = (shutil.copytree(finished, tmp_path / "runs" / name) for name in ("good", "bad"))
    (bad / "SHA256SUMS").unlink()
    shutil.rmtree(bad / "checkpoints")
    lines = [json.loads(line) for line in (bad / "metrics.jsonl").read_text().splitlines()]
    for name in ("client_updates", "bytes_up", "round", "loss", "client_mean"):
        changed = [{**line, name: 10**4000 + line["round"]} for line in lines]
        (bad / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in changed))
        assert main(["compare", str(tmp_path / "runs")]) == 0
        assert main(["report", str(tmp_path / "runs")]) == 0
        assert len(readable(read_all([tmp_path / "runs"]))) == (2 if name == "client_mean" else 1)
    assert main(["compare", str(good)]) == 0


def test_forms():
    form = {"a": int, "b?": [(float, None)], "c?": {"d": str}}
    good = [{"a": 1}, {"a": -1, "b": []}, {"a": 0, "b": [1, 2.5, None]}, {"a": 0, "c": {"d": ""}, "more": {}}]
    bad = [
        {}, {"a": True}, {"a": 1.0}, {"a": 2**63}, {"a": 1, "b": None}, {"a": 1, "b": ["x"]}, {"a": 1, "c": {}}, [],
        None, {"a": 1, "b": [float("inf")]},
    ]  # fmt: skip
    assert all(fits(value, form) for value in good)
    assert not any(fits(value, form) for value in bad)
    for text in ("{", "[" * 100_000, '{"a": NaN}', '{"a": "1"}'):
        with pytest.raises(ValueError):
            decode(text, form)


def test_a_checkpoint_of_another_version_hides_no_results(unfinished, tmp_path):
    folder = shutil.copytree(unfinished, tmp_path / "run")
    for path in (folder / "checkpoints").glob("*.json"):
        manifest = json.loads(path.read_text()) | {"format": 1}
        path.write_text(json.dumps({**manifest, "sha256": manifest_digest(manifest)}))
    assert fedseq.read_run(folder).rounds == 3
    with pytest.raises(FedSeqError, match="another version"):
        fedseq.resume(folder)
