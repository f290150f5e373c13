"""Run many experiments: algorithms, alphas and seeds, several at a time; what is finished is skipped."""

import shlex
import signal
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedseq.cli import INTERRUPTED, add_config_flags, config_from
from fedseq.cli.console import describe, live_progress, make_console, print_table
from fedseq.config import FIELDS, Config, resolve
from fedseq.configfile import coerce, from_mapping
from fedseq.errors import FedSeqError

if TYPE_CHECKING:
    from fedseq.paper.pool import Event
    from fedseq.paper.tasks import Task

EXAMPLE = "fedseq sweep --algorithms fedavg,fedseq --alphas 0,0.2 --seeds 0,1,2 --dataset digits --rounds 60"
VARIED = ("algorithm", "alpha", "seed")
HEARTBEAT = 60.0  # seconds between lines about what is running, on a pipe


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("config", nargs="?", metavar="CONFIG.yaml", help="options from a file; flags go over it")
    parser.add_argument("--algorithms", default="centralized,fedavg,fedseq", metavar="A,B", help="algorithms to run")
    parser.add_argument("--alphas", default="0", metavar="X,Y", help="values of alpha (default: 0)")
    parser.add_argument("--seeds", default="0", metavar="N,M", help="seeds (default: 0)")
    parser.add_argument("--out", metavar="DIR", help="folder for the runs (default: runs/sweep-DATASET)")
    parser.add_argument("--jobs", metavar="N", help="runs at a time (default: one for each core)")
    add_config_flags(parser, [name for name in FIELDS if name not in VARIED and name != "engine"])


def main(arguments: Namespace) -> int:
    from fedseq.paper.tasks import refuse_other_runs
    from fedseq.report.convergence import by_dataset, compare, find_bound
    from fedseq.report.reading import read_all, readable
    from fedseq.report.tables import comparison_table

    tasks = sweep_tasks(arguments)
    for task in tasks:
        refuse_other_runs(task)
    console = make_console()
    code = run_tasks(tasks, jobs_from(arguments.jobs), console, shlex.join(["fedseq", *sys.argv[1:]]))
    runs = readable(read_all(task.folder for task in tasks))
    for members in by_dataset(runs).values():
        bound = find_bound(members)
        print_table(console, comparison_table(compare(members, bound), bound))
    if runs:
        console.print(f"make a page of them with: fedseq report {tasks[0].folder.parent}", markup=False)
    return code


def sweep_tasks(arguments: Namespace) -> list["Task"]:
    from fedseq.paper.tasks import Task, on_serial_engine

    base = config_from(arguments)
    given = {
        "algorithm": _words(arguments.algorithms),
        "alpha": _words(arguments.alphas),
        "seed": _words(arguments.seeds),
    }
    root = (
        Path(arguments.out)
        if arguments.out
        else Path("runs") / f"sweep-{base.dataset.replace(':', '-').replace('/', '-')}"
    )
    tasks: dict[Path, Task] = {}
    for values in product(*given.values()):
        chosen = {name: coerce(name, value) for name, value in zip(given, values, strict=True)}
        config = resolve(_for_algorithm(from_mapping(chosen, base)))
        dealt = "" if config.algorithm == "centralized" else f"-alpha{config.alpha:g}"
        folder = root / f"{config.algorithm}{dealt}-seed{config.seed}"
        tasks.setdefault(folder, Task(folder, on_serial_engine(config)))
    return list(tasks.values())


def _for_algorithm(config: Config) -> Config:
    """The centralized bound is the same for every alpha; its epochs are not the others' rounds."""
    if config.algorithm != "centralized":
        return config
    return from_mapping({"alpha": 0.0, "rounds": None, "partition": None, "num_clients": None}, config)


def _words(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise FedSeqError("--algorithms, --alphas and --seeds take values separated by commas.")
    return words


def jobs_from(text: str | None) -> int:
    from fedseq.paper.pool import default_jobs

    if text is None:
        return default_jobs()
    if not text.isdigit() or int(text) < 1:
        raise FedSeqError(f"--jobs must be 1 or more, not {text}.")
    return int(text)


def run_tasks(tasks: Sequence["Task"], jobs: int, console: Any, again: str) -> int:
    """Do what is not done yet, with one overview. 0, 2 if something failed, 130 after Ctrl-C."""
    from fedseq.paper.pool import work_through
    from fedseq.paper.tasks import is_done

    todo = [task for task in tasks if not is_done(task)]
    console.print(
        f"{len(tasks) - len(todo)} of {len(tasks)} finished, {len(todo)} to do, {min(jobs, len(todo))} at a time",
        markup=False,
    )
    if not todo:
        return 0
    terminate = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Overview(console, len(tasks), len(tasks) - len(todo)) as overview:
            outcomes = work_through(todo, jobs, overview.show)
    except KeyboardInterrupt:
        console.print(f"interrupted and saved. Continue with: {again}", markup=False)
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, terminate)
    failed = {task: outcome for task, outcome in outcomes.items() if outcome != "finished"}
    for task, outcome in failed.items():
        console.print(f"not finished: {task.label}: {outcome}", markup=False)
    return 2 if failed else 0


class Overview:
    """A bar for all, and one for each task being worked on; on a pipe, a line for each that ends."""

    def __init__(self, console: Any, total: int, done: int) -> None:
        self.console, self.total, self.done = console, total, done
        self.progress = live_progress(console)
        self.whole = self.progress.add_task("all", total=total, completed=done, text="")
        self.running: dict[Task, tuple[Any, float]] = {}
        self.told = time.monotonic()

    def __enter__(self) -> "Overview":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def show(self, event: "Event") -> None:
        if event.kind == "started" and event.task:
            bar = self.progress.add_task(event.task.label, total=event.task.config.rounds or 0, text="")
            self.running[event.task] = (bar, time.monotonic())
        elif event.kind == "ended" and event.task:
            bar, began = self.running.pop(event.task)
            self.progress.remove_task(bar)
            self.done += 1
            self.progress.update(self.whole, completed=self.done)
            how = ", ".join([event.outcome, *_result(event.task)])
            seconds = time.monotonic() - began
            self.progress.console.print(
                f"[{self.done}/{self.total}] {event.task.label}: {how}, {seconds:.0f} s", markup=False
            )
        else:
            self._look()

    def _look(self) -> None:
        from fedseq.paper.tasks import last_record

        where = []
        for task, (bar, _) in self.running.items():
            record = last_record(task.folder) or {}
            self.progress.update(bar, completed=record.get("round", 0), text=describe(record))
            where.append(task.label + ("" if task.epochs else f": round {record.get('round', 0)}/{task.config.rounds}"))
        if not self.console.is_terminal and time.monotonic() - self.told > HEARTBEAT:
            self.told = time.monotonic()
            self.console.print(f"[{self.done}/{self.total}] working on {'; '.join(where)}", markup=False)


def _result(task: "Task") -> Iterator[str]:
    from fedseq.paper.tasks import last_record

    if not task.epochs:
        yield from filter(None, [describe(last_record(task.folder) or {})])
