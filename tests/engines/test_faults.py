"""Workers that hang, run out of memory or lose their parent, and a run that is told to stop meanwhile."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedseq.api.experiment import resume, run
from fedseq.basics.errors import FedSeqError, is_out_of_memory
from fedseq.cli import main
from fedseq.engines import processes
from fedseq.engines.processes import ProcessEngine
from fedseq.engines.serial import SerialEngine
from fedseq.training.jobs import Job, Result, Task
from fedseq.training.sgd import build
from helpers import children_of, files_of, is_running, start, wait_for

from .test_engines import assert_same

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="workers are forked, on Linux only")


@pytest.fixture
def engine(task: Task) -> Iterator[ProcessEngine]:
    opened = ProcessEngine(task, 2)
    yield opened
    opened.close()


def stop_for_good(pid: int) -> None:
    """In a process group of its own. If the shell that began ours ends meanwhile, the system lets all go on that are
    stopped in ours, which nobody could do any more."""
    os.setpgid(pid, pid)
    os.kill(pid, signal.SIGSTOP)


def test_a_stopped_worker_is_replaced(
    engine: ProcessEngine, task: Task, jobs: list[Job], expected: list[Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "HANGING_SECONDS", 2)
    weights = build(task).vector
    pending = engine.begin_evaluation(weights)
    stopped = [worker.process.pid or 0 for worker in engine.workers]
    for pid in stopped:
        stop_for_good(pid)
    assert_same(list(engine.run(jobs)), expected)
    assert pending.result() == SerialEngine(task).evaluate(weights)
    assert not {worker.process.pid for worker in engine.workers} & set(stopped)


def read_what_never_comes(output: Tensor, target: Tensor, folder: Path) -> Tensor:
    """The first process to come here waits in the kernel for ever."""
    try:
        (folder / "first").mkdir()
    except FileExistsError:
        return cross_entropy(output, target)
    reading, _ = os.pipe()
    os.read(reading, 1)
    raise AssertionError("nobody writes")


@pytest.mark.slow
def test_a_worker_that_waits_in_a_system_call_is_replaced(
    task: Task, jobs: list[Job], expected: list[Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "HANGING_SECONDS", 2)
    engine = ProcessEngine(replace(task, loss=partial(read_what_never_comes, folder=tmp_path)), 2)
    assert_same(list(engine.run(jobs)), expected)
    assert (tmp_path / "first").exists()
    engine.close()


def compute_for_long(output: Tensor, target: Tensor, folder: Path) -> Tensor:
    """Three seconds of CPU time, once in each process."""
    try:
        (folder / str(os.getpid())).mkdir()
    except FileExistsError:
        return cross_entropy(output, target)
    until = time.process_time() + 3
    while time.process_time() < until:
        pass
    return cross_entropy(output, target)


@pytest.mark.slow
def test_a_worker_that_computes_for_long_is_left_alone(
    task: Task, jobs: list[Job], expected: list[Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "HANGING_SECONDS", 2)
    engine = ProcessEngine(replace(task, loss=partial(compute_for_long, folder=tmp_path)), 1)
    worker = engine.workers[0]
    assert_same(list(engine.run(jobs[:2])), expected[:2])
    assert engine.workers == [worker]
    engine.close()


@pytest.mark.slow
def test_engines_end_soon_after_a_stop(engine: ProcessEngine, task: Task, jobs: list[Job]) -> None:
    """Also if all workers hang, with an evaluation under way that is still wanted."""
    weights = build(task).vector
    pending = engine.begin_evaluation(weights)
    for worker in engine.workers:
        stop_for_good(worker.process.pid or 0)
    assert not list(engine.run(jobs, lambda: True))
    assert pending.result(lambda: True) == SerialEngine(task).evaluate(weights)
    for worker in engine.workers:
        stop_for_good(worker.process.pid or 0)
    answers = iter([False])  # the request to stop comes while the result is waited for
    assert engine.begin_evaluation(weights).result(lambda: next(answers, True)) == pending.result()
    answers = iter([False] * 3)
    assert len(list(SerialEngine(task).run(jobs, lambda: next(answers, True)))) == 2  # of one and of two clients


def test_a_worker_that_cannot_be_replaced_ends_the_run_with_what_is_missing(
    task: Task, jobs: list[Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ProcessEngine(task, 2)

    def too_many(*_: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    for worker in engine.workers:
        os.kill(worker.process.pid or 0, signal.SIGKILL)
    monkeypatch.setattr(processes, "_Worker", too_many)
    with pytest.raises(OSError, match="Too many open files"):
        list(engine.run(jobs))
    engine.close()


def test_workers_that_were_made_before_one_that_could_not_be_are_ended(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that had just begun missed the SIGTERM of Python's exit, which then waited for it for ever."""
    made: list[int] = []

    class Third(processes._Worker):
        def __init__(self, *arguments: Any) -> None:
            if len(made) == 2:
                raise OSError(errno.EMFILE, "Too many open files")
            super().__init__(*arguments)
            made.append(self.process.pid or 0)

    monkeypatch.setattr(processes, "_Worker", Third)
    with pytest.raises(OSError, match="Too many open files"):
        ProcessEngine(task, 4)
    assert len(made) == 2
    assert not any(is_running(pid) for pid in made)


@pytest.mark.slow
def test_one_sigterm_ends_a_run_whose_workers_hang(tmp_path: Path) -> None:
    words = ["--dataset", "digits", "--grouping", "random", "--out", "run", "--engine", "processes", "--workers", "2"]
    started = start("run", *words, "--rounds", "100000")
    metrics = Path("run/metrics.jsonl")
    wait_for(lambda: started.poll() is not None or (metrics.exists() and metrics.read_text().count("\n") >= 2))
    workers = children_of(started.pid)
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    os.kill(started.pid, signal.SIGTERM)
    told = time.monotonic()
    output = "".join(started.communicate())
    assert time.monotonic() - told < processes.HANGING_SECONDS, "they were found to hang first"
    assert len(workers) == 2
    assert started.returncode == 130, output
    done = metrics.read_text().count("\n")
    resume("run", engine="serial", rounds=done + 1)
    run(dataset="digits", grouping="random", engine="serial", rounds=done + 1, folder="alone")
    assert files_of(Path("run")) == files_of(Path("alone"))


WAITING_MODEL = """
import time
from pathlib import Path
from torch import nn

class Net(nn.Sequential):
    def __init__(self, shape, num_classes):
        super().__init__(nn.Flatten(), nn.Linear(64, num_classes))

    def forward(self, x):
        if self.training:  # not where the model is tried before the run
            Path("here").touch()
            while not Path("go").exists():
                time.sleep(0.01)
        return super().forward(x)
"""


@pytest.mark.slow
@pytest.mark.parametrize("check", ["none", "size"])
def test_one_sigterm_ends_a_run_in_the_middle_of_its_first_chain(check: str) -> None:
    """With a check that is the chain it is calibrated by."""
    Path("waiting.py").write_text(WAITING_MODEL)
    words = ["--dataset", "digits", "--algorithm", "fedavg", "--rounds", "1", "--model", "waiting:Net"]
    words += ["--update-check", check]
    started = start("run", *words, "--engine", "processes", "--workers", "2", "--out", "run")
    wait_for(lambda: started.poll() is not None or Path("here").exists())
    os.kill(started.pid, signal.SIGTERM)
    output = "".join(started.communicate())
    assert started.returncode == 130, output
    Path("go").touch()
    assert main(["resume", "run", "--trust", "--engine", "serial"]) == 0
    assert main(["run", *words, "--engine", "serial", "--out", "alone"]) == 0
    assert files_of(Path("run")) == files_of(Path("alone"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_pre_training_in_the_background(number: signal.Signals) -> None:
    """A shell without job control starts what is in the background with SIGINT ignored."""
    Path("mynet.py").write_text(WAITING_MODEL)
    words = ["--dataset", "digits", "--rounds", "1", "--model", "mynet:Net", "--engine", "processes", "--workers", "2"]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        started = start("run", *words, "--out", "run")
    finally:
        signal.signal(signal.SIGINT, before)
    wait_for(lambda: started.poll() is not None or Path("here").exists())
    os.kill(started.pid, number)
    output = "".join(started.communicate())
    assert started.returncode == 130, output
    assert "fedseq resume run" in output


def take_too_much(output: Tensor, target: Tensor, python: bool) -> Tensor:
    return output * (len(bytearray(1 << 60)) if python else torch.zeros(1 << 50)[0])


@pytest.mark.parametrize("python", [True, False])
def test_out_of_memory_in_a_worker_is_one_sentence(task: Task, jobs: list[Job], python: bool) -> None:
    greedy = ProcessEngine(replace(task, loss=partial(take_too_much, python=python)), 2)
    with pytest.raises(FedSeqError, match=r"^a worker ran out of memory\. Use fewer --workers .*$"):
        list(greedy.run(jobs))
    greedy.close()


GREEDY_MODEL = """
import torch

class Net(torch.nn.Linear):
    def __init__(self, shape, num_classes):
        super().__init__(64, num_classes)

    def forward(self, x):
        return torch.zeros(1 << 50) if self.training else super().forward(x.flatten(1))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "code", "message"), [("serial", 1, "not enough mem"), ("processes", 2, "ran out of mem")]
)
def test_the_command_line_says_it_without_a_traceback(
    engine: str, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("greedy.py").write_text(GREEDY_MODEL)
    words = ["--dataset", "digits", "--algorithm", "fedavg", "--rounds", "1", "--model", "greedy:Net", "--out", "run"]
    assert main(["run", *words, "--engine", engine]) == code
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_what_is_out_of_memory_and_what_is_not() -> None:
    assert is_out_of_memory(OSError(12, "Cannot allocate memory"))
    assert is_out_of_memory(SystemError("error return without exception set"))
    assert not is_out_of_memory(SystemError("bad argument to internal function"))
    assert not is_out_of_memory(OSError(28, "No space left on device"))
    assert not is_out_of_memory(RuntimeError("shapes do not match"))
    assert not is_out_of_memory(ImportError("No module named 'mynet'"))


def test_too_little_memory_to_load_pytorch_is_one_sentence() -> None:
    """`ulimit -v`, with less than the library's own size."""
    command = f"import resource, sys; resource.setrlimit(resource.RLIMIT_AS, ({250 << 20}, {250 << 20}))\n"
    command += "import fedseq.cli; sys.exit(fedseq.cli.main(['run', '--out', 'run']))"
    ended = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1), ended.stderr
    assert "not enough memory" in ended.stderr


ORPHANS = """
import os, signal, sys
sys.path.insert(0, "tests")
from tests.engines.test_engines import ProcessEngine, make_jobs, make_task
task = make_task()
engine = ProcessEngine(task, 2)
next(engine.run(make_jobs(task)))
print(*(worker.process.pid for worker in engine.workers), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_die_with_their_parent() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", ORPHANS], cwd=root, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    alive = [int(pid) for pid in done.stdout.split()]
    assert len(alive) == 2
    wait_for(lambda: not any(is_running(pid) for pid in alive), 20)
