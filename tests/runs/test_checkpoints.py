import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from fedseq.basics.errors import FedSeqError
from fedseq.runs.checkpoints import Snapshot, load_checkpoint, save_checkpoint

BLANK: dict[str, Any] = {
    "options": {}, "data": "", "algorithm": {}, "model": {}, "superclients": None,
    "metrics": {"length": 0, "sha256": ""}, "timing": {"length": 0},
}  # vouches for nothing else  # fmt: skip


def progress(round_, clients):
    """Client k's memory last changed in round clients[k]."""
    state = {"weights": torch.full((5,), float(round_)), "slot_examples": torch.tensor([round_, 2])}
    memory = {k: {"g": torch.full((3,), 10.0 * k + changed)} for k, changed in clients.items()}
    return Snapshot(round_, state, memory, dict(clients))


def test_what_is_saved_comes_back(tmp_path):
    saved = progress(7, {3: 2, 11: 7})
    save_checkpoint(tmp_path, saved, {**BLANK, "data": "123"})
    loaded, evidence = load_checkpoint(tmp_path)
    assert evidence == {**BLANK, "data": "123"}
    assert (loaded.round, loaded.changed) == (7, {3: 2, 11: 7})
    assert torch.equal(loaded.state["weights"], saved.state["weights"])
    assert loaded.state["slot_examples"].dtype == torch.int64
    assert torch.equal(loaded.memory[11]["g"], saved.memory[11]["g"])


def test_only_changed_memory_is_written_and_the_last_two_checkpoints_are_kept(tmp_path):
    save_checkpoint(tmp_path, progress(1, {0: 1, 1: 1}), BLANK)
    first = (tmp_path / "memory" / "1-1.safetensors").stat().st_mtime_ns
    save_checkpoint(tmp_path, progress(2, {0: 2, 1: 1}), BLANK)
    save_checkpoint(tmp_path, progress(3, {0: 3, 1: 1}), BLANK)
    assert (tmp_path / "memory" / "1-1.safetensors").stat().st_mtime_ns == first
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {
        "000002.json", "000002.safetensors", "000003.json", "000003.safetensors",
        "0-2.safetensors", "0-3.safetensors", "1-1.safetensors",
    }  # fmt: skip


def test_nothing_saved_is_none(tmp_path):
    assert load_checkpoint(tmp_path) is None


@pytest.mark.parametrize("name", ["000002.json", "000002.safetensors", "memory/4-2.safetensors"])
def test_any_flipped_bit_or_cut_is_noticed(tmp_path, name):
    save_checkpoint(tmp_path, progress(1, {4: 1}), BLANK)
    save_checkpoint(tmp_path, progress(2, {4: 2}), BLANK)
    intact = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    content = intact[tmp_path / name]
    for cut in (False, True):
        for position in range(0, len(content), max(1, len(content) // 25)):
            damaged = content[:position] if cut else _flip(content, position)
            (tmp_path / name).write_bytes(damaged)
            with pytest.warns(UserWarning, match="damaged"):
                loaded, _ = load_checkpoint(tmp_path)
            assert loaded.round == 1
            for path, whole in intact.items():  # what is damaged was set aside, and what refers to it
                path.write_bytes(whole)
    assert load_checkpoint(tmp_path)[0].round == 2


def _flip(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 1 << position % 8]) + content[position + 1 :]


def test_another_format_is_refused_by_name(tmp_path, monkeypatch):
    for name, value in (("checkpoints.FORMAT", 99), ("manifests.FORMAT", 99), ("manifests.READABLE", (99,))):
        monkeypatch.setattr(f"fedseq.runs.{name}", value)
    save_checkpoint(tmp_path, progress(1, {}), BLANK)
    monkeypatch.undo()
    with pytest.raises(FedSeqError, match="another version"):
        load_checkpoint(tmp_path)


def test_a_pickle_named_as_a_checkpoint_is_not_executed(tmp_path):
    import pickle

    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "owned"), "w"))

    save_checkpoint(tmp_path, progress(1, {}), BLANK)
    (tmp_path / "000001.safetensors").write_bytes(pickle.dumps(Bomb()))
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(FedSeqError, match="every checkpoint"):
        load_checkpoint(tmp_path)
    (tmp_path / "000001.json").write_bytes(pickle.dumps(Bomb()))
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(FedSeqError, match="every checkpoint"):
        load_checkpoint(tmp_path)
    assert not (tmp_path / "owned").exists()


def test_the_manifest_names_every_file_with_its_digest(tmp_path):
    save_checkpoint(tmp_path, progress(1, {2: 1}), BLANK)
    manifest = json.loads((tmp_path / "000001.json").read_text())
    assert manifest["files"] == {
        name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
        for name in ("memory/2-1.safetensors", "000001.safetensors")
    }


@pytest.mark.parametrize("name", ["000002.safetensors", "memory/4-2.safetensors"])
def test_what_a_damaged_checkpoint_vouched_for_is_written_anew(tmp_path, name):
    """Run again, round 2 may end with other memory (a client of a federation that is refused this time)."""
    save_checkpoint(tmp_path, progress(1, {4: 1}), BLANK)
    save_checkpoint(tmp_path, progress(2, {4: 2}), BLANK)
    (tmp_path / name).write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="damaged"):
        load_checkpoint(tmp_path)
    again = progress(2, {4: 2})
    again = replace(again, memory={4: {key: value + 1 for key, value in again.memory[4].items()}})
    save_checkpoint(tmp_path, again, BLANK)
    loaded, _ = load_checkpoint(tmp_path)
    for key, value in again.memory[4].items():
        assert torch.equal(loaded.memory[4][key], value)


@pytest.mark.parametrize("name", ["/etc/hostname", "../precious.safetensors", "memory/../../precious.safetensors", 3])
def test_a_manifest_names_nothing_outside_of_its_folder(tmp_path, name):
    """Whoever gives us a folder can write a manifest with a right checksum."""
    folder = tmp_path / "checkpoints"
    save_checkpoint(folder, progress(1, {}), BLANK)
    (tmp_path / "precious.safetensors").write_bytes(b"precious")
    manifest = json.loads((folder / "000001.json").read_text())
    manifest["files"][name] = "0" * 64
    body = json.loads(json.dumps({key: value for key, value in manifest.items() if key != "sha256"}))
    manifest["sha256"] = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    (folder / "000001.json").write_text(json.dumps(manifest))
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(FedSeqError, match="every checkpoint"):
        load_checkpoint(folder)
    assert (tmp_path / "precious.safetensors").read_bytes() == b"precious"


def test_other_files_among_the_checkpoints_are_left_alone(tmp_path):
    save_checkpoint(tmp_path, progress(1, {}), BLANK)
    (tmp_path / "1-notes.json").write_text("{}")
    assert load_checkpoint(tmp_path)[0].round == 1
    assert (tmp_path / "1-notes.json").exists()


def test_where_none_is_good_nothing_is_renamed_and_the_next_try_says_the_same(tmp_path):
    save_checkpoint(tmp_path, progress(1, {}), BLANK)
    save_checkpoint(tmp_path, progress(2, {}), BLANK)
    before = sorted(path.name for path in tmp_path.iterdir())
    for _ in range(2):
        with pytest.warns(UserWarning, match="lost"), pytest.raises(FedSeqError, match=r"every checkpoint.*lost"):
            load_checkpoint(tmp_path, damage=lambda evidence: "its lines are lost")
    assert sorted(path.name for path in tmp_path.iterdir()) == before
