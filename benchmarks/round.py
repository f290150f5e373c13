"""The round: 500 clients x 100 CIFAR-10 images, 100 clients' updates, batch 64, LeNet-5, crop and flip.

`make bench` prints a table and puts it into docs/performance.md. Core-seconds are CPU time of all processes; of several
rounds the best counts. With FEDSEQ_DATA (or an argument) naming a folder with CIFAR-10 its pictures are used, else
random ones of the same shape, which cost the same.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import chain
from pathlib import Path

import numpy as np
import torch

from fedseq import algorithms
from fedseq.api.experiment import execute
from fedseq.data import load_dataset
from fedseq.engines.dispatcher import keep_freed_memory
from fedseq.engines.processes import ProcessEngine
from fedseq.models import model_factory
from fedseq.options.config import Config
from fedseq.options.resolve import resolve
from fedseq.rounds.prepare import prepare
from fedseq.training.chains import run_job
from fedseq.training.examples import Examples
from fedseq.training.jobs import Job, Task
from fedseq.training.reporter import Quiet
from fedseq.training.sgd import build, lay_out, one_thread
from measure import FORWARD_FLOPS, TRAINING_FLOPS, PeakMemory, cpu_by_process, cpu_name, gemm_peak, start_up

IMAGES = 10_000  # trained on per round, and evaluated
PARAMETERS = 797_962
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"


@dataclass(frozen=True)
class Cost:
    """Of one round."""

    wall: float
    parent: float  # core-seconds outside the workers: planning, moving, merging, writing
    workers: tuple[float, ...]

    @property
    def cores(self) -> float:
        return self.parent + sum(self.workers)


class Meter(Quiet):
    """Takes the time between rounds."""

    def __init__(self) -> None:
        self.readings: list[tuple[float, dict[int, float]]] = []

    def begin(self, config: Config, folder: Path, round_: int) -> None:
        self.readings.append((time.perf_counter(), cpu_by_process()))

    def round(self, *_: object) -> None:
        self.readings.append((time.perf_counter(), cpu_by_process()))

    def costs(self) -> list[Cost]:
        costs = []
        for (began, before), (ended, after) in zip(self.readings, self.readings[1:], strict=False):
            spent = {pid: after[pid] - before.get(pid, 0.0) for pid in after}
            costs.append(Cost(ended - began, spent.pop(0), tuple(spent.values())))
        return costs


def pictures(folder: str | None) -> tuple[Examples, Examples]:
    mean, std = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
    if folder:
        data = load_dataset("cifar10", Path(folder))
        pairs: Iterable[tuple[np.ndarray, np.ndarray]] = ((data.x_train, data.y_train), (data.x_test, data.y_test))
    else:
        rng = np.random.default_rng(0)
        pairs = (
            (rng.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8), rng.integers(0, 10, n)) for n in (50_000, IMAGES)
        )
    train, test = (Examples(_tensor(x), _tensor(y), mean, std) for x, y in pairs)
    return train, test


def _tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.require(array, requirements="W"))  # a copy only of what is mapped from a file


def rounds(
    train: Examples,
    clients: Sequence[np.ndarray],
    algorithm: str,
    workers: int,
    *,
    count: int = 3,
    drawn: float = 0.2,
    engine: str = "processes",
    kernels: str = "fast",
) -> list[Cost]:
    """Real rounds through the round loop; the only evaluation, after the last, is of one picture."""
    config = resolve({
        "dataset": "cifar10", "algorithm": algorithm, "num_clients": len(clients), "rounds": count, "fraction": drawn,
        "engine": engine, "workers": workers, "eval_every": count, "grouping": "random",
        "kernels": kernels,
    }, lenient=True)  # fmt: skip
    one = replace(train, x=train.x[:1], y=train.y[:1])
    task = Task(
        model_factory("lenet5", (3, 32, 32), 10), train, clients, one, 10, augment="crop-flip", weight_decay=4e-4
    )
    meter = Meter()
    with tempfile.TemporaryDirectory() as folder:
        execute(prepare(config, task, algorithms.build(config)), Path(folder), meter)
    return meter.costs()


def best(costs: Sequence[Cost]) -> Cost:
    return min(costs, key=lambda cost: cost.cores)


def equal_clients(number: int, size: int, total: int) -> list[np.ndarray]:
    """Index arrays; where there are more than the data gives, examples are shared."""
    return np.split(np.random.default_rng(1).permutation(np.arange(number * size) % total), number)


def evaluation(train: Examples, test: Examples, kernels: str) -> float:
    """Core-seconds for 10,000 pictures on two workers."""
    task = Task(model_factory("lenet5", (3, 32, 32), 10), replace(train, x=train.x[:1]), [], test, 10, kernels=kernels)
    engine = ProcessEngine(task, 2)
    weights = build(task).vector
    spent = []
    for _ in range(3):
        before = sum(cpu_by_process().values())
        engine.evaluate(weights)
        spent.append(sum(cpu_by_process().values()) - before)
    engine.close()
    return min(spent) * IMAGES / len(test.x)


def visit(train: Examples, kernels: str, repeats: int = 15) -> float:
    """CPU milliseconds of a client's visit, 64 and 36 pictures, in this process, as in a worker's."""
    keep_freed_memory()
    clients = [np.arange(100)]
    task = Task(
        model_factory("lenet5", (3, 32, 32), 10), train, clients, train, 10, augment="crop-flip", weight_decay=4e-4,
        kernels=kernels,
    )  # fmt: skip
    model = build(task)
    task = lay_out(task, model)
    job = Job(0, 0, 1, ((0, 0),), model.vector.clone(), algorithms.fedavg(), 0.01)
    spent = []
    with one_thread():
        for _ in range(repeats):
            began = time.process_time()
            run_job(task, model, job)
            spent.append(time.process_time() - began)
    return 1000 * min(spent)


def speedup(one: Cost, two: Cost) -> str:
    """By the clock, and by the CPU time of the busier worker, which other load on the machine does not distort."""
    return f"{one.wall / two.wall:.2f}x by wall clock, {one.cores / (two.parent + max(two.workers)):.2f}x in CPU time"


def table(train: Examples, test: Examples, count: int) -> Iterator[tuple[str, str]]:
    """Row after row, as they are measured."""
    clients = equal_clients(500, 100, len(train.x))
    peak = gemm_peak()
    visits = {name: visit(train, name) for name in ("torch", "fast")}
    by_torch = best(rounds(train, clients, "fedavg", 2, count=count, kernels="torch"))
    fedavg = {workers: best(rounds(train, clients, "fedavg", workers, count=count)) for workers in (2, 1)}
    cost, peak = fedavg[2], max(peak, gemm_peak())
    limit = IMAGES * TRAINING_FLOPS / peak
    yield "GEMM peak of a core (fp32)", f"{peak / 1e9:.0f} GFLOP/s"
    yield "the round at GEMM peak, by direct convolution", f"{limit:.1f} core-s"
    yield "a client's visit, kernels torch / fast", _ratio(visits["torch"], visits["fast"], "ms")
    yield "the round, FedAvg, 2 workers, kernels torch / fast", _ratio(by_torch.cores, cost.cores, "core-s")
    yield "the same, wall-clock time", _ratio(by_torch.wall, cost.wall, "s")
    yield "share of direct GEMM peak, torch / fast", f"{limit / by_torch.cores:.0%} / {limit / cost.cores:.0%}"
    yield "outside SGD and evaluation", f"{cost.parent / cost.cores:.1%} of the round's core-s"
    evaluated = {name: evaluation(train, test, name) for name in ("torch", "fast")}
    yield "evaluation of 10,000 pictures, torch / fast", _ratio(evaluated["torch"], evaluated["fast"], "core-s")
    share = IMAGES * FORWARD_FLOPS / peak / evaluated["fast"]
    yield "its share of direct GEMM peak", f"{share:.0%}"
    yield "2 workers against 1, FedAvg (100 clients)", speedup(fedavg[1], fedavg[2])
    fedseq = {workers: best(rounds(train, clients, "fedseq", workers, count=count)) for workers in (2, 1)}
    yield "2 workers against 1, FedSeq (12 chains)", speedup(fedseq[1], fedseq[2])
    yield from memory_rows(train, clients)
    yield scaling_row(train, count)


def _ratio(slow: float, fast: float, unit: str) -> str:
    return f"{slow:.2f} / {fast:.2f} {unit} ({slow / fast:.2f}x)"


def start_up_row(data: str) -> tuple[str, str]:
    fedavg, fedseq = (min(start_up(data, algorithm) for _ in range(3)) for algorithm in ("fedavg", "fedseq"))
    return "from the command to the first round, FedAvg / FedSeq (random)", f"{fedavg:.1f} s / {fedseq:.1f} s"


def memory_rows(train: Examples, clients: Sequence[np.ndarray]) -> Iterator[tuple[str, str]]:
    yield "peak memory (PSS), FedSeq, 2 workers", f"{peak_memory(train, clients, 'fedseq'):.2f} GiB"
    # After 15 rounds nearly every client was drawn; most get few examples here, which only saves time.
    short = [indices[: 100 if number < 20 else 10] for number, indices in enumerate(clients)]
    state = len(clients) * 4 * PARAMETERS / 2**30
    yield "peak memory (PSS), FedAvg, 2 workers", f"{peak_memory(train, short, 'fedavg'):.2f} GiB"
    feddyn = peak_memory(train, short, "feddyn", count=15)
    yield f"peak memory (PSS), FedDyn, nearly all clients seen (state {state:.2f} GiB)", f"{feddyn:.2f} GiB"


def peak_memory(train: Examples, clients: Sequence[np.ndarray], algorithm: str, count: int = 1) -> float:
    with PeakMemory() as watched:
        rounds(train, clients, algorithm, 2, count=count)
    return watched.peak / 2**30


def scaling_row(train: Examples, count: int) -> tuple[str, str]:
    small, large = (
        best(rounds(train, equal_clients(number, 10, len(train.x)), "fedavg", 2, count=count, drawn=100 / number)).cores
        for number in (1_000, 100_000)
    )
    name = "100 of 100,000 clients against 100 of 1,000 (10 examples each)"
    return name, f"{large / small:.2f}x core-s ({large:.2f} / {small:.2f})"


def write(rows: Sequence[tuple[str, str]], command: str = "make bench", page: Path = PAGE) -> None:
    """Replace what stands between the command's markers."""
    begin, end = f"<!-- begin: {command} -->", f"<!-- end: {command} -->"
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    head = f"{date.today()}, {cpu_name()}, {os.cpu_count()} cores, torch {torch.__version__}, load average {load}."
    lines = [head, "", "| measured | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]
    before, rest = page.read_text().split(begin)
    page.write_text("\n".join([before + begin, *lines, end + rest.split(end)[1]]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default=os.environ.get("FEDSEQ_DATA"), help="folder with CIFAR-10")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each kind; the best counts")
    arguments = parser.parse_args()
    rows = []
    start = [start_up_row(arguments.data)] if arguments.data else []
    for name, value in chain(start, table(*pictures(arguments.data), arguments.rounds)):
        print(f"{name:<66}{value}", flush=True)  # noqa: T201
        rows.append((name, value))
    write(rows)


if __name__ == "__main__":
    main()
