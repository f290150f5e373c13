"""Clients' memory beyond a limit lies in files, and nothing else changes."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
import torch
from torch import Tensor

import fedseq
from fedseq.basics.errors import FedSeqError
from fedseq.basics.stopping import Interrupted
from fedseq.runs.checkpoints import CheckpointWriter, Snapshot, Stored, load_checkpoint
from fedseq.training.reporter import Quiet

BLANK: dict[str, Any] = {
    "options": {}, "data": "", "algorithm": {}, "model": {}, "superclients": None,
    "metrics": {"length": 0, "sha256": ""}, "timing": {"length": 0},
}  # vouches for nothing else  # fmt: skip

OPTIONS = {"dataset": "digits", "model": "mlp", "rounds": 6, "engine": "serial"}
PARAMETERS = 64 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10
CLIENT = 4 * PARAMETERS / 2**30  # what a client remembers, in GiB


class Watch(Quiet):
    """Counts the clients' memories that this process holds after each round; may stop it after one."""

    def __init__(self, stop_after: int = 0):
        self.held: list[int] = []
        self.stop_after = stop_after

    def round(self, record):
        gc.collect()
        self.held.append(sum(type(thing) is Tensor and thing.shape == (PARAMETERS,) for thing in gc.get_objects()))
        if record["round"] == self.stop_after:
            os.kill(os.getpid(), signal.SIGINT)


def files_of(folder):
    return [(folder / name).read_bytes() for name in ("metrics.jsonl", "weights.safetensors")]


@pytest.mark.parametrize("engine", ["serial", "processes"])
@pytest.mark.parametrize("algorithm", ["feddyn", "scaffold", "fedseq+feddyn"])
def test_the_bits_are_the_same(tmp_path, algorithm, engine):
    grouped = {"grouping": "random"} if "fedseq" in algorithm else {}
    options = {**OPTIONS, **grouped, "algorithm": algorithm, "engine": engine}
    free = fedseq.run(options, tmp_path / "free")
    for limit in (0.0, 7 * CLIENT):
        bounded = fedseq.run(options, tmp_path / str(limit), memory_limit=limit)
        assert files_of(bounded.folder) == files_of(free.folder)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["feddyn", "scaffold"])
def test_an_interrupted_run_continues_under_another_limit(tmp_path, algorithm):
    options = {**OPTIONS, "algorithm": algorithm, "checkpoint_every": 2}
    free = fedseq.run(options, tmp_path / "free")
    with pytest.raises(Interrupted):
        fedseq.run(options, tmp_path / "cut", memory_limit=0.0, reporter=Watch(stop_after=3))
    fedseq.resume(tmp_path / "cut", memory_limit=5 * CLIENT)
    assert files_of(tmp_path / "cut") == files_of(free.folder)


@pytest.mark.slow
def test_a_killed_run_continues(tmp_path):
    options = {**OPTIONS, "algorithm": "scaffold", "rounds": 30, "checkpoint_every": 3, "memory_limit": 0.0}
    whole = fedseq.run(options, tmp_path / "whole")
    code = f"import fedseq; fedseq.run({options!r}, {str(tmp_path / 'cut')!r})"
    for lines in (5, 14):
        process = subprocess.Popen([sys.executable, "-c", code])
        metrics = tmp_path / "cut" / "metrics.jsonl"
        while process.poll() is None and not (metrics.exists() and metrics.read_bytes().count(b"\n") >= lines):
            time.sleep(0.001)
        process.kill()
        process.wait()
    fedseq.resume(tmp_path / "cut")
    assert files_of(tmp_path / "cut") == files_of(whole.folder)


@pytest.mark.slow
def test_no_more_than_the_limit_is_held(tmp_path):
    options = {**OPTIONS, "algorithm": "feddyn", "rounds": 8}
    free, bounded = Watch(), Watch()
    run = fedseq.run(options, tmp_path / "free", reporter=free, memory_limit=None)
    fedseq.run(options, tmp_path / "bounded", reporter=bounded, memory_limit=10 * CLIENT)
    drawn = [{client for chain in record["clients"] for client in chain} for record in run.metrics]
    seen = len(set.union(*drawn))
    assert seen - len(drawn[0]) >= 40
    others = free.held[0] - len(drawn[0])  # the model and what is made of it
    assert free.held[-1] - others == pytest.approx(seen, abs=4)  # the memory of every client that was drawn
    last_round_and_limit = len(drawn[0]) + 10
    assert max(bounded.held) - others <= last_round_and_limit + 4


def test_rare_checkpoints_do_not_fill_the_disk(tmp_path):
    """Of each client that was seen one file is there, though every round writes those of its clients anew."""

    class Count(Quiet):
        def __init__(self):
            self.seen, self.files = set(), []

        def round(self, record):
            self.seen |= {client for chain in record["clients"] for client in chain}
            kept = (tmp_path / "run" / "checkpoints" / "memory").glob("*")
            self.files.append((len(self.seen), len(list(kept))))

    counted, rare = Count(), {"checkpoint_every": 1000, "memory_limit": 0.0}
    fedseq.run(OPTIONS, tmp_path / "run", algorithm="feddyn", num_clients=30, rounds=12, reporter=counted, **rare)
    assert all(seen == files for seen, files in counted.files)
    assert len(counted.seen) < 12 * 6  # some were seen twice


def stand(round_: int, clients: dict[int, int]) -> Snapshot:
    memory = {client: {"g": torch.full((256,), float(client))} for client in clients}
    return Snapshot(round_, {"weights": torch.zeros(3)}, memory, clients)


def test_what_changed_longest_ago_goes_first_and_stays_through_checkpoints(tmp_path):
    with CheckpointWriter(tmp_path / "checkpoints", lambda: BLANK) as writer:
        progress = writer.spill(stand(4, {0: 4, 1: 2, 2: 3, 3: 1}), 2 * 1024 / 2**30)
        assert [client for client, kept in progress.memory.items() if isinstance(kept, Stored)] == [1, 3]
        assert writer.spill(progress, 2 * 1024 / 2**30) is progress
        for round_ in (4, 5, 6, 7):
            progress.round = round_
            writer.save(progress)
            writer.wait()
    assert {client: float(kept["g"][0]) for client, kept in progress.memory.items()} == {0: 0, 1: 1, 2: 2, 3: 3}
    loaded = load_checkpoint(tmp_path / "checkpoints")
    assert loaded is not None
    assert {client: float(kept["g"][0]) for client, kept in loaded[0].memory.items()} == {0: 0, 1: 1, 2: 2, 3: 3}
    assert loaded[0].changed == {0: 4, 1: 2, 2: 3, 3: 1}


def test_what_is_stored_reads_like_a_dict_and_is_sent_as_one(tmp_path):
    with CheckpointWriter(tmp_path / "checkpoints", lambda: BLANK) as writer:
        kept = writer.spill(stand(1, {5: 1}), 0.0).memory[5]
    assert isinstance(kept, Stored)
    assert (list(kept), len(kept), "g" in kept, kept.get("c")) == (["g"], 1, True, None)
    kept.path.rename(kept.path.with_suffix(".moved"))
    with pytest.raises(FedSeqError, match=r"5-1\.safetensors.*damaged"):
        dict(kept)
    kept.path.with_suffix(".moved").rename(kept.path)
    sent = pickle.loads(pickle.dumps(kept))
    assert type(sent) is dict
    assert torch.equal(sent["g"], torch.full((256,), 5.0))
    kept.path.write_bytes(kept.path.read_bytes()[:-1] + b"\x07")
    with pytest.raises(FedSeqError, match=r"5-1\.safetensors.*checksum"):
        kept.load()


def test_a_damaged_file_ends_the_run_with_its_name(tmp_path):
    class Damage(Quiet):
        def round(self, record):
            for path in (tmp_path / "run" / "checkpoints" / "memory").glob("*-1.safetensors"):
                path.write_bytes(b"")

    with pytest.raises(FedSeqError, match=r"-1\.safetensors, where a client's memory was kept, is damaged"):
        fedseq.run(OPTIONS, tmp_path / "run", algorithm="feddyn", rounds=20, memory_limit=0.0, reporter=Damage())
