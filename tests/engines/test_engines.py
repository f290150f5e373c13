"""Every engine and every number of workers gives the same bits; workers come, go and fail without a trace."""

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedseq.algorithms.base import FEDAVG, Algorithm, Hop
from fedseq.api.experiment import run
from fedseq.basics.errors import FedSeqError
from fedseq.engines.dispatcher import DEATHS_PER_REQUEST, WorkerError, most_requests
from fedseq.engines.processes import ProcessEngine, open_processes
from fedseq.engines.serial import SerialEngine
from fedseq.options.resolve import resolve
from fedseq.options.tables import AVERAGES, LOCAL_RULES, SERVER_RULES
from fedseq.training.examples import Examples
from fedseq.training.jobs import Job, Result, Task
from fedseq.training.sgd import build
from fitting import that_fit

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="workers are forked, on Linux only")

ALGORITHMS = (
    "fedavg", "fedprox", "scaffold", "feddyn", "fedavgm", "fedseq", "fedseq+fedprox", "fedseq+scaffold",
    "fedseqinter", "fedseqinter+feddyn", "centralized",
)  # fmt: skip
CLIENTS = 12


class Net(nn.Module):
    """Convolution, BatchNorm and dropout: layouts, buffers and random numbers all take part."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3), nn.Linear(8 * 36, 4)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def make_task() -> Task:
    rng = np.random.default_rng(0)

    def examples(count: int) -> Examples:
        x, y = rng.integers(0, 256, (count, 3, 8, 8), dtype=np.uint8), rng.integers(0, 4, count)
        return Examples(torch.from_numpy(x), torch.from_numpy(y), (0.5, 0.4, 0.3), (0.2, 0.3, 0.2))

    clients = np.split(np.arange(600), np.cumsum([20, 80, 1, 64, 65, 30, 40, 100, 50, 50, 50]))
    return Task(lambda: Net(), examples(600), clients, examples(1234), 4, augment="crop-flip", momentum=0.5)


def make_jobs(task: Task, algorithm: Algorithm = FEDAVG, start: Tensor | None = None) -> list[Job]:
    """Chains of one to four clients, each with a memory of its own."""
    start = build(task).vector if start is None else start
    size = len(build(task).parameters)
    chains = [(0,), (1, 2), (3, 4, 5, 6), (7,), (8,), (9, 10, 11)]
    memory = {client: {"g": torch.full((size,), client / 100)} for client in range(CLIENTS)}
    return [
        Job(i, i, 1, tuple((c, 0) for c in chain), start, algorithm, 0.05, memory={c: memory[c] for c in chain})
        for i, chain in enumerate(chains)
    ]


def test_there_are_no_more_workers_than_requests() -> None:
    """Twelve clients; the 1,234 examples of the test set are 13 batches."""
    task = make_task()
    assert most_requests(task) == 13
    few = replace(task, clients=task.clients[:2], test=replace(task.test, x=task.test.x[:250], y=task.test.y[:250]))
    engine = open_processes(few, resolve({"engine": "processes", "workers": 300}))
    with contextlib.closing(engine):
        assert isinstance(engine, ProcessEngine)
        assert engine.room() == 3


def assert_same(found: list[Result], expected: list[Result]) -> None:
    found, expected = (sorted(results, key=lambda result: result.index) for results in (found, expected))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.start, other.start)
        assert torch.equal(one.end, other.end)
        assert one.loss == other.loss
        assert one.memory.keys() == other.memory.keys()
        assert all(torch.equal(one.memory[c][k], other.memory[c][k]) for c in one.memory for k in one.memory[c])


def shared_files(pids: Iterable[int]) -> set[Path]:
    """Named shared memory that these processes use; that of all others on this machine is none of a test's business."""
    maps = [Path(f"/proc/{pid}/maps") for pid in pids]
    lines = [line for path in maps if path.exists() for line in path.read_text().splitlines()]
    return {Path(line[line.index("/dev/shm/") :]) for line in lines if "/dev/shm/" in line and "(deleted)" not in line}


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def engine(task: Task) -> Iterator[ProcessEngine]:
    before = open_files()
    opened = ProcessEngine(task, 2)
    yield opened
    shared = shared_files([os.getpid(), *(child.pid for child in multiprocessing.active_children() if child.pid)])
    opened.close()
    assert not multiprocessing.active_children()
    assert not any(path.exists() for path in shared)
    assert open_files() == before


def run_digits(folder: Path, algorithm: str, **options: Any) -> tuple[bytes, bytes]:
    fitting = that_fit(
        algorithm,
        num_clients=20,
        rounds=2,
        fraction=0.5,
        grouping="random",
        max_clients=4,
        min_samples=200,
        merge_every=2,
    )
    run({**fitting, **options}, folder, dataset="digits", algorithm=algorithm)
    return (folder / "metrics.jsonl").read_bytes(), (folder / "weights.safetensors").read_bytes()


RULES = [f"fedseq+{rule}" for rule in (*LOCAL_RULES, *SERVER_RULES, *AVERAGES)]


@pytest.mark.parametrize("algorithm", dict.fromkeys([*ALGORITHMS, *RULES]))
def test_workers_give_the_bytes_of_the_serial_engine(algorithm: str, tmp_path: Path) -> None:
    expected = run_digits(tmp_path / "serial", algorithm, engine="serial")
    for workers in (1, 2, 3, 8) if algorithm == "fedseqinter+feddyn" else (2,):
        found = run_digits(tmp_path / str(workers), algorithm, engine="processes", workers=workers)
        assert found == expected, f"{workers} workers"
    assert not multiprocessing.active_children()


def test_convolutions_dropout_batchnorm_and_memory(
    engine: ProcessEngine, jobs: list[Job], expected: list[Result]
) -> None:
    assert_same(list(engine.run(jobs)), expected)
    assert_same(list(engine.run(jobs)), expected)


def test_evaluation_is_the_same_for_any_number_of_workers(task: Task, engine: ProcessEngine) -> None:
    weights = build(task).vector
    expected = SerialEngine(task).evaluate(weights)
    assert engine.evaluate(weights) == expected
    many = ProcessEngine(task, 5)
    assert many.evaluate(weights) == expected
    many.close()


def test_results_do_not_change_when_the_mailbox_is_used_again(engine: ProcessEngine, jobs: list[Job]) -> None:
    results = list(engine.run(jobs))
    copies = [result.end.clone() for result in results]
    list(engine.run([replace(job, start=job.start * 2) for job in jobs]))
    assert all(torch.equal(result.end, copy) for result, copy in zip(results, copies, strict=True))


def test_killed_workers_are_replaced_and_nothing_changes(
    engine: ProcessEngine, jobs: list[Job], expected: list[Result]
) -> None:
    os.kill(engine.workers[1].process.pid or 0, signal.SIGKILL)  # while idle
    found: list[Result] = []
    for result in engine.run(jobs):
        if len(found) in (0, 2):
            os.kill(engine.workers[0].process.pid or 0, signal.SIGKILL)  # while busy
        found.append(result)
    assert_same(found, expected)


def kill_yourself(output: Tensor, target: Tensor) -> Tensor:
    os.kill(os.getpid(), signal.SIGKILL)
    return output.sum()


def test_a_job_that_kills_every_worker_is_given_up(task: Task) -> None:
    deadly = ProcessEngine(replace(task, loss=kill_yourself), 2)
    with pytest.raises(FedSeqError, match=f"killed {DEATHS_PER_REQUEST} workers"):
        list(deadly.run(make_jobs(task)))
    deadly.close()


def fail(gradient: Tensor, hop: Hop, error: type[Exception]) -> None:
    raise error("no such luck")


def test_an_exception_reaches_the_parent_with_its_traceback(engine: ProcessEngine, task: Task) -> None:
    with pytest.raises(WorkerError, match=r"(?s)in fail.*ValueError: no such luck"):
        list(engine.run(make_jobs(task, Algorithm("broken", correct=partial(fail, error=ValueError)))))
    with pytest.raises(FedSeqError, match=r"^no such luck$"):
        list(engine.run(make_jobs(task, Algorithm("broken", correct=partial(fail, error=FedSeqError)))))


def spoil(gradient: Tensor, hop: Hop, lent: str) -> None:
    {"start": hop.start, **hop.message, **hop.memory}.get(lent, torch.zeros(1)).zero_()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("lent", "words"), [
    ("start", "start"), ("sent", r"message\['sent'\]"), ("kept", r"memory\['kept'\]"),
])  # fmt: skip
def test_an_algorithm_that_changes_what_others_read_is_told_so(task: Task, workers: int, lent: str, words: str) -> None:
    place = ProcessEngine(task, workers) if workers else SerialEngine(task)
    jobs = [
        replace(
            job, message={"sent": torch.ones(3)}, memory={client: {"kept": torch.ones(3)} for client, _ in job.hops}
        )
        for job in make_jobs(task, Algorithm("spoiler", correct=partial(spoil, lent=lent)))
    ]
    with pytest.raises(FedSeqError, match=rf"'spoiler' changes hop\.{words}, .* Let it change a copy\."):
        list(place.run(jobs))
    place.close()


def remember_the_model(hop: Hop) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """As a user would write it: `hop.weights` is a view of where the next client will train."""
    return {"sent": hop.weights}, {"kept": hop.weights}


@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_rule_keeps_of_its_model_stays_as_it_was(task: Task, workers: int) -> None:
    """The chain's last client trained last, so that it alone may remember the chain's end; uploads are summed."""
    place = ProcessEngine(task, workers) if workers else SerialEngine(task)
    (job, *_) = make_jobs(task, Algorithm("mine", finish=remember_the_model))
    (result,) = place.run([replace(job, hops=((1, 0), (3, 0), (4, 0)))])
    place.close()
    first, second, last = (result.memory[client]["kept"] for client in (1, 3, 4))
    assert torch.equal(last, result.end[: len(last)])
    assert not torch.equal(first, second)
    assert not torch.equal(second, last)
    assert torch.equal(result.uploads["sent"], first + second + last)


def test_the_engine_can_be_used_after_results_were_left_unread(
    engine: ProcessEngine, jobs: list[Job], expected: list[Result]
) -> None:
    abandoned = engine.run(jobs)
    next(abandoned)
    abandoned.close()  # type: ignore[attr-defined]
    assert_same(list(engine.run(jobs)), expected)


def test_ctrl_c_is_left_to_the_parent(engine: ProcessEngine, jobs: list[Job], expected: list[Result]) -> None:
    list(engine.run(jobs))
    workers = [worker.process.pid or 0 for worker in engine.workers]
    for pid in workers:
        os.kill(pid, signal.SIGINT)
    assert_same(list(engine.run(jobs)), expected)
    assert [worker.process.pid for worker in engine.workers] == workers


def test_an_algorithm_that_cannot_be_sent_is_run_in_place(engine: ProcessEngine, task: Task) -> None:
    local = make_jobs(task, Algorithm("local", correct=lambda gradient, hop: None))
    with pytest.warns(UserWarning, match="'local' cannot be sent"):
        found = list(engine.run(local))
    assert_same(found, list(SerialEngine(task).run(local)))


def test_inside_a_worker_process_jobs_run_in_place(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
    with pytest.warns(UserWarning, match="worker process itself"):
        assert isinstance(open_processes(task, resolve({"workers": 2})), SerialEngine)
