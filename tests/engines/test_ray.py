"""A cluster of three nodes on this machine gives the bits of the serial engine, whatever dies in it."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedseq.algorithms.base import Algorithm
from fedseq.algorithms.feddyn import feddyn
from fedseq.api.experiment import resume, run
from fedseq.basics.errors import FedSeqError
from fedseq.engines import dispatcher
from fedseq.engines.dispatcher import WorkerError
from fedseq.engines.serial import SerialEngine
from fedseq.training.jobs import Job, Result, Task
from fedseq.training.sgd import build
from fitting import that_fit
from helpers import files_of, start, wait_for

from .test_engines import assert_same, fail, kill_yourself, make_jobs

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
]

from ray.cluster_utils import Cluster  # noqa: E402

from fedseq.engines.ray import RayEngine  # noqa: E402
from fedseq.engines.ray_cluster import connected  # noqa: E402

NODE: dict[str, Any] = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 200_000_000}
SMALL = {"num_clients": 20, "fraction": 0.5, "max_clients": 4, "min_samples": 200}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A head that does not compute, as the driver's machine may be, and two nodes that do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        made = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 0, "include_dashboard": False})
        made.add_node(**NODE)
        made.add_node(**NODE)
        with connected(made.address, None):  # once: what a later engine finds, it uses and leaves as it is
            yield made
        made.shutdown()


@pytest.fixture
def engine(cluster: Cluster, task: Task) -> Iterator[RayEngine]:
    opened = RayEngine(task)
    yield opened
    opened.close()
    assert ray.is_initialized()


OWN_MODEL = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, shape, num_classes):
        super().__init__(nn.Flatten(), nn.Linear(64, num_classes))
"""


def test_the_command_line_joins_a_cluster_and_brings_a_model_of_the_current_folder(
    cluster: Cluster, tmp_path: Path
) -> None:
    """First of all tests: those below cancel tasks and kill nodes, and what Ray keeps of that is not meant here."""
    Path("mynet.py").write_text(OWN_MODEL)
    words = ["run", "--dataset", "digits", "--rounds", "2", "--grouping", "random", "--model", "mynet:Net"]
    joined = start(*words, "--engine", "ray", "--ray-address", cluster.address, "--workers", "1", "--out", "joined")
    output = "".join(joined.communicate())
    assert joined.returncode == 0, output
    alone = start(*words, "--engine", "serial", "--out", "alone")
    alone.communicate()
    assert files_of(Path("joined")) == files_of(Path("alone"))
    assert cluster.remaining_processes_alive()


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("fedseq+feddyn", {"approximator": "confidence", "pretrain_epochs": 2}),
        ("scaffold", {"update_check": "size", "attack": "scale:50", "client_dropout": 0.2}),
        (
            "fedseqinter",
            {"approximator": "classifier-last", "pretrain_epochs": 1, "merge_every": 2, "client_dropout": 0.2},
        ),
        ("fedavg+median", {}),
        ("fedprox+fedavgm", {"momentum": 0.5, "dp_clip_norm": 0.3, "dp_noise_multiplier": 0.5}),  # private visits
        ("centralized", {}),
    ],
)
def test_the_bytes_of_the_serial_engine(
    cluster: Cluster, tmp_path: Path, algorithm: str, options: dict[str, Any]
) -> None:
    wanted: dict[str, Any] = {"dataset": "digits", "algorithm": algorithm, "rounds": 2}
    for name in ("serial", "ray"):
        run({**wanted, **that_fit(algorithm, **SMALL, **options)}, tmp_path / name, engine=name)
    assert files_of(tmp_path / "ray") == files_of(tmp_path / "serial")
    groups = [tmp_path / name / "superclients.json" for name in ("serial", "ray")]
    assert groups[0].exists() == groups[1].exists() == ("fedseq" in algorithm)
    assert not groups[0].exists() or groups[0].read_bytes() == groups[1].read_bytes()


def test_convolutions_dropout_batchnorm_memory_and_evaluation(
    engine: RayEngine, task: Task, jobs: list[Job], expected: list[Result]
) -> None:
    assert_same(list(engine.run(jobs)), expected)
    assert_same(list(engine.run(jobs)), expected)
    weights = build(task).vector
    assert engine.evaluate(weights) == SerialEngine(task).evaluate(weights)


def test_evaluation_beside_training_also_when_results_are_left_unread(
    engine: RayEngine, task: Task, jobs: list[Job], expected: list[Result]
) -> None:
    weights = build(task).vector
    pending = [engine.begin_evaluation(weights * factor) for factor in (1, 2)]
    assert_same(list(engine.run(jobs)), expected)
    abandoned = engine.run(jobs)
    next(abandoned)
    abandoned.close()  # type: ignore[attr-defined]
    for factor, begun in zip((1, 2), pending, strict=True):
        assert begun.result() == SerialEngine(task).evaluate(weights * factor)


def test_tensors_of_a_round_are_stored_once(
    engine: RayEngine, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, put = [], ray.put

    def count(array: np.ndarray) -> Any:
        stored.append(array)
        return put(array)

    monkeypatch.setattr(ray, "put", count)
    message = {"h": torch.ones(1000)}
    list(engine.run([replace(job, message=message) for job in jobs]))
    memories = sum(len(job.memory) for job in jobs)
    assert len(stored) == 1 + 1 + memories  # the start, the message, and what each client keeps


def wait_at_first(output: Tensor, target: Tensor, folder: Path) -> Tensor:
    """Says where it runs, and does not go on until it is told to."""
    (folder / f"{ray.get_runtime_context().get_node_id()} {os.getpid()}").touch()
    wait_for((folder / "go").exists)
    return cross_entropy(output, target)


@pytest.mark.parametrize("what", ["node", "worker"])
def test_what_dies_in_the_middle_of_a_job_is_replaced(
    cluster: Cluster, task: Task, jobs: list[Job], expected: list[Result], tmp_path: Path, what: str
) -> None:
    engine = RayEngine(replace(task, loss=partial(wait_at_first, folder=tmp_path)))
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(lambda: list(engine.run(jobs)))
        wait_for(lambda: found.done() or len(list(tmp_path.glob("* *"))) == 2)  # both nodes are at a job now
        node_id, pid = next(tmp_path.glob("* *")).name.split()
        if what == "node":
            doomed = next(node for node in cluster.worker_nodes if node.node_id == node_id)
            cluster.remove_node(doomed, allow_graceful=False)
        else:
            os.kill(int(pid), signal.SIGKILL)
        (tmp_path / "go").touch()
        assert_same(found.result(), expected)
    engine.close()
    if what == "node":
        cluster.add_node(**NODE)


def test_a_job_that_kills_every_worker_is_given_up(
    cluster: Cluster, task: Task, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "DEATHS_PER_REQUEST", 2)  # a new worker takes seconds
    deadly = RayEngine(replace(task, loss=kill_yourself))
    with pytest.raises(FedSeqError, match=r"chain of clients .* killed"):
        list(deadly.run(jobs[:1]))
    deadly.close()


def test_an_exception_reaches_the_driver(engine: RayEngine, task: Task) -> None:
    with pytest.raises(WorkerError, match=r"(?s)in fail.*ValueError: no such luck"):
        list(engine.run(make_jobs(task, Algorithm("broken", correct=partial(fail, error=ValueError)))))
    with pytest.raises(FedSeqError, match=r"^no such luck$"):
        list(engine.run(make_jobs(task, Algorithm("broken", correct=partial(fail, error=FedSeqError)))))


def test_the_engine_can_be_used_after_results_were_left_unread(
    engine: RayEngine, jobs: list[Job], expected: list[Result]
) -> None:
    abandoned = engine.run(jobs)
    next(abandoned)
    abandoned.close()  # type: ignore[attr-defined]
    assert_same(list(engine.run(jobs)), expected)


def test_functions_without_a_name_are_sent(cluster: Cluster, task: Task, expected: list[Result]) -> None:
    scale, correct = 1.0, feddyn(0.1).correct
    assert correct is not None
    engine = RayEngine(replace(task, loss=lambda output, target: scale * cross_entropy(output, target)))
    same = make_jobs(task, replace(feddyn(0.1), correct=lambda gradient, hop: correct(gradient, hop)))
    assert_same(list(engine.run(same)), expected)
    engine.close()
    with pytest.raises(FedSeqError, match="cannot be sent to Ray's workers"):
        RayEngine(replace(task, loss=partial(cross_entropy, weight=threading.Lock())))  # type: ignore[arg-type]


@pytest.mark.parametrize(("first", "second"), [("ray", "serial"), ("serial", "ray")])
def test_a_run_is_continued_on_another_engine(cluster: Cluster, tmp_path: Path, first: str, second: str) -> None:
    wanted: dict[str, Any] = {**SMALL, "dataset": "digits", "algorithm": "fedseq+scaffold", "grouping": "random"}
    run(engine="serial", rounds=4, folder=tmp_path / "whole", **wanted)
    address = {"ray_address": cluster.address} if first == "ray" else {}
    run(engine=first, rounds=2, folder=tmp_path / "parts", **wanted, **address)
    resume(tmp_path / "parts", engine=second, rounds=4)
    assert files_of(tmp_path / "parts") == files_of(tmp_path / "whole")
