"""A run folder, or a file of options, from someone else: looking at it runs nothing of theirs and waits for nobody."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedseq
from fedseq.basics.errors import FedSeqError
from fedseq.cli import main
from fedseq.runs.checkpoints import write_tensors
from fedseq.runs.manifests import newest_evidence

NOTES = """
from pathlib import Path
from torch import nn
from fedseq.algorithms import fedavg
Path("trace").touch()
def rule():
    return fedavg()
class Net(nn.Sequential):
    def __init__(self, shape, num_classes):
        super().__init__(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], num_classes))
"""
OPTIONS = {"dataset": "digits", "num_clients": 20, "rounds": 1, "engine": "serial"}
CODE = {"model": "notes:Net", "algorithm": "fedavg+notes:rule"}


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A finished run of a model and a rule whose code lies beside it. Importing that leaves a trace."""
    (tmp_path / "notes.py").write_text(NOTES)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    fedseq.run(OPTIONS, "shared", **CODE)
    _forget(monkeypatch)
    np.save("new.npy", np.zeros((1, 1, 8, 8), np.uint8))
    yield Path("shared")
    _forget(monkeypatch)


def _forget(monkeypatch):
    monkeypatch.delitem(__import__("sys").modules, "notes", raising=False)
    Path("trace").unlink(missing_ok=True)


@pytest.mark.parametrize(
    "words", ["evaluate shared", "predict shared new.npy", "resume shared", "run shared/config.yaml --out again"]
)
def test_code_that_a_folder_names_is_run_only_if_trusted(shared, words, capsys):
    assert main(words.split()) == 2
    assert not Path("trace").exists()
    error = capsys.readouterr().err
    assert "notes:Net" in error
    assert ("notes:rule" in error) == words.startswith("r")  # a model is used without the rule it was trained by
    assert "--trust" in error
    assert main([*words.split(), "--trust"]) == 0
    assert Path("trace").exists()


@pytest.mark.parametrize("words", ["ls .", "compare shared", "report shared"])
def test_looking_needs_no_trust_and_runs_nothing(shared, words):
    assert main(words.split()) == 0
    assert not Path("trace").exists()


def test_in_python(shared):
    for use in (fedseq.load_model, fedseq.resume):
        with pytest.raises(FedSeqError, match="trust=True"):
            use(shared)
        assert not Path("trace").exists()
    assert fedseq.load_model(shared, trust=True)
    assert Path("trace").exists()


def test_what_is_named_now_needs_no_trust(shared):
    """Options out of the file that are given as flags do not count, and code that the user names is the user's."""
    named = [word for name, value in CODE.items() for word in (f"--{name}", value)]
    assert main(["run", "shared/config.yaml", "--out", "again", *named]) == 0
    assert Path("trace").exists()


def test_a_folder_does_not_choose_the_model_of_a_run_that_left_it_open(tmp_path):
    """Where the model follows from the data, a continued run takes it from the folder, unless it is code."""
    rng = np.random.default_rng(0)
    arrays = {f"x_{part}": rng.normal(size=(60, 4)).astype(np.float32) for part in ("train", "test")}
    np.savez("data.npz", **arrays, y_train=np.arange(60) % 3, y_test=np.arange(60) % 3)
    options = {"dataset": "npz:data.npz", "rounds": 1, "engine": "serial", "algorithm": "fedavg", "num_clients": 3}
    fedseq.run(options, "run")
    config = Path("run/config.yaml")
    config.write_text(config.read_text().replace("model: mlp", "model: notes:Net"))
    shutil.rmtree("run/checkpoints")
    (tmp_path / "notes.py").write_text(NOTES)
    with pytest.raises(FedSeqError, match="not asked for now"):
        fedseq.run(options, "run")
    assert not Path("trace").exists()


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, after in zip("abcdefghi", "bcdefghij", strict=True)
)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (f"{BOMB}lr: *j\n", "alias"),
        (f"seed: 0x{'f' * 50_000}\n", "hundreds of digits"),
        (f"rounds: {'9' * 10_000}\n", "hundreds of digits"),
        ("lr: " + "[" * 50_000, "not valid YAML"),
        ("#" * 10_000_000, "too many for a file of options"),
    ],
)
def test_a_hostile_file_of_options_is_one_error(content, words, capsys):
    Path("preset.yaml").write_text(content)
    Path("theirs").mkdir()
    Path("theirs/config.yaml").write_text(content)
    assert main(["run", "preset.yaml"]) == 2
    assert words in capsys.readouterr().err
    assert main(["ls", "."]) == 0
    assert main(["evaluate", "theirs"]) == 2


@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "weights.safetensors", "SHA256SUMS", "timing.jsonl"])
def test_a_pipe_in_the_place_of_a_file_keeps_nobody_waiting(name, capsys):
    fedseq.run(OPTIONS, "run", algorithm="fedavg")
    Path("run", name).unlink()
    os.mkfifo(Path("run", name))
    for words in (["ls", "."], ["compare", "run"], ["evaluate", "run"], ["report", "run"]):
        assert main(words) in (0, 2), words
    assert main(["resume", "run", "--rounds", "2"]) == 2
    assert name in capsys.readouterr().err


@pytest.mark.parametrize("name", ["pretraining/a/weights.npy", "pretraining/a", "tracking"])
def test_nothing_is_written_through_links_below_the_folder(name, tmp_path):
    fedseq.run(OPTIONS, "run", algorithm="fedavg")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "events.out.tfevents.1").write_text("mine")
    (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "run" / name).symlink_to(tmp_path / "mine")
    words = ["report", "run", "--track", "tensorboard"] if name == "tracking" else ["resume", "run", "--rounds", "2"]
    assert main(words) == 2
    assert [path.read_text() for path in (tmp_path / "mine").iterdir()] == ["mine"]


def _forge(path: Path, **changes: Any) -> None:
    """A manifest with other values and the checksum that belongs to them: anybody can write one."""
    manifest = json.loads(path.read_text())
    manifest["evidence"].update(changes.pop("evidence", {}))
    manifest.update(changes)
    body = json.dumps({name: value for name, value in manifest.items() if name != "sha256"}, sort_keys=True)
    path.write_text(json.dumps({**manifest, "sha256": hashlib.sha256(body.encode()).hexdigest()}))


FORGED: list[dict[str, Any]] = [
    *({"round": value} for value in (None, -3, 2.5, "1", 10**9)), *({"policies": value} for value in (1, "x", [[1]])),
    {"evidence": {"model": 1}}, {"evidence": {"model": "x"}}, {"evidence": {"model": []}},
    {"evidence": {"metrics": 7}}, {"evidence": {"metrics": {}}},
    *({"evidence": {"options": value}} for value in (0, "x", None)),
    {"evidence": {"data": 1}}, {"evidence": {"superclients": [1]}}, {"evidence": {"timing": {"length": "x"}}},
]  # fmt: skip


def test_a_forged_manifest_is_one_error(capsys):
    fedseq.run(OPTIONS, "run", algorithm="fedavg")
    Path("run/checkpoints/000000.json").unlink()
    manifest = Path("run/checkpoints/000001.json")
    written = manifest.read_text()
    for changes in FORGED:
        manifest.write_text(written)
        assert newest_evidence(manifest.parent) is not None
        _forge(manifest, **changes)
        assert newest_evidence(manifest.parent) is None, changes
    assert main(["resume", "run", "--rounds", "2"]) == 2
    assert "is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("state", [{}, {"weights": torch.zeros(3)}, {"weights": torch.zeros(3, dtype=torch.int64)}])
def test_a_forged_state_is_one_error(state, capsys):
    fedseq.run(OPTIONS, "run", algorithm="fedavg")
    Path("run/checkpoints/000000.json").unlink()
    digest = write_tensors(Path("run/checkpoints/000001.safetensors"), state)
    _forge(Path("run/checkpoints/000001.json"), files={"000001.safetensors": digest})
    assert main(["resume", "run", "--rounds", "2"]) == 2
    assert "of another model or algorithm" in capsys.readouterr().err


@pytest.mark.parametrize("groups", ["x", [[10**30]], [[-1]], [["a"]], [[2.5]], [[]], [], 7])
def test_forged_superclients_are_one_error_and_keep_no_report_from_being_made(groups, capsys):
    fedseq.run(OPTIONS, "run", algorithm="fedseq", grouping="random")
    superclients = Path("run/superclients.json")
    superclients.write_text(json.dumps({"superclients": groups}))
    Path("run/SHA256SUMS").unlink()
    for path in Path("run/checkpoints").glob("*.json"):
        _forge(path, evidence={"superclients": hashlib.sha256(superclients.read_bytes()).hexdigest()})
    assert main(["report", "run"]) in (0, 2)  # where there are no groups, the rest is shown
    assert main(["resume", "run", "--rounds", "2"]) == 2
    assert "run/superclients.json" in capsys.readouterr().err


def test_a_forged_description_of_the_algorithm_keeps_no_report_from_being_made():
    fedseq.run(OPTIONS, "run", algorithm="fedavg")
    clients = Path("run/clients.json")
    described = json.loads(clients.read_text())
    described["algorithm"]["extra_passes"] = "x"
    clients.write_text(json.dumps(described))
    Path("run/SHA256SUMS").unlink()
    assert main(["compare", "run"]) == 0
    assert main(["report", "run"]) == 0


@pytest.mark.parametrize(
    "forged", [{"bytes_up": "x"}, {"bytes_down": None}, {"client_updates": []}, {"skipped": [None]}, {"epsilon": "x"}]
)
def test_forged_metrics_are_one_line_of_a_report(forged, capsys):
    fedseq.run(OPTIONS, "run", algorithm="fedavg")
    metrics = Path("run/metrics.jsonl")
    metrics.write_text(json.dumps({**json.loads(metrics.read_text()), **forged}) + "\n")
    Path("run/SHA256SUMS").unlink()
    shutil.rmtree("run/checkpoints")
    assert main(["compare", "run"]) == 2
    assert "line 1 of run/metrics.jsonl is damaged" in capsys.readouterr().err


def test_names_do_not_steer_a_terminal(capsys):
    folder = "x\x1b[2J\n| y"
    fedseq.run(OPTIONS, folder, algorithm="fedavg")
    for words in (["ls", folder], ["compare", folder], ["evaluate", folder], ["evaluate", f"{folder}/no\x1b[2J"]):
        main(words)
        said = "".join(capsys.readouterr())
        assert said
        assert "\x1b" not in said, words
    main(["ls", folder])
    assert len(capsys.readouterr().out.splitlines()) == 3  # a head, a rule and one run
