"""What a person sees while a command works: a live bar on a terminal, plain lines on a pipe."""

import sys
import time
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedseq.config import Config

PIPE_WIDTH = 160  # a pipe has no width: wide enough that no table is folded


def make_console(stderr: bool = False) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    return Console(
        stderr=stderr, width=None if stream.isatty() else PIPE_WIDTH, highlight=False, soft_wrap=not stream.isatty()
    )


def print_table(console: Console, table: Table) -> None:
    """A table for the eye; on a pipe a Markdown table, which is plain and can be pasted."""
    if console.is_terminal:
        console.print(table)
        return
    table.box = box.MARKDOWN
    with console.capture() as captured:
        console.print(table)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    console.print("\n".join(line for line in lines if line), markup=False)


def live_progress(console: Console) -> Progress:
    """A bar per task; on a pipe it draws nothing."""
    return Progress(
        TextColumn("{task.description:<12}"), BarColumn(bar_width=24), MofNCompleteColumn(),
        TextColumn("{task.fields[text]}"), TimeRemainingColumn(compact=True),
        console=console, disable=not console.is_terminal,
    )  # fmt: skip


class ConsoleReporter:
    """Prints each evaluation; use it as a context around the work."""

    def __init__(self, console: Console, verbose: bool = True, progress: Progress | None = None):
        self.console = console
        self.verbose = verbose  # print a line per evaluation, not only the bar
        self.progress = progress or live_progress(console)
        self.stages: dict[str, Any] = {}
        self.task: Any = None
        self.total = 0
        self.every = 1
        self.began = (0.0, 0)
        self.spent = {"train": 0.0, "evaluate": 0.0, "overhead": 0.0}

    def __enter__(self) -> "ConsoleReporter":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def stage(self, done: int, total: int, what: str) -> None:
        if what not in self.stages:
            self.stages[what] = self.progress.add_task(what, total=total, text="")
            if not self.console.is_terminal:
                self.note(f"{what} ({total}) ...")
        self.progress.update(self.stages[what], completed=done, visible=done < total)

    def note(self, text: str) -> None:
        self.progress.console.print(text, markup=False)

    def begin(self, config: Config, folder: Path, round_: int) -> None:
        self.total = config.rounds or 0
        evaluations = self.total // config.eval_every
        self.every = max(1, evaluations // 200) * config.eval_every if self.console.is_terminal else 1
        self.began = (time.monotonic(), round_)
        self.task = self.progress.add_task(config.algorithm, total=self.total, completed=round_, text="")
        if self.verbose:
            self.note(f"{config.algorithm} on {config.dataset}, {self.total} rounds, in {folder}")
            if round_:
                self.note(f"continuing after round {round_}")

    def round(self, record: dict[str, Any]) -> None:
        round_ = record["round"]
        speed = (round_ - self.began[1]) / max(time.monotonic() - self.began[0], 1e-9)
        text = describe(record)
        self.count(record.get("seconds", {}))
        live = f"{text or '...'}  {speed:.2f} rounds/s  {self.shares()}"
        self.progress.update(self.task, completed=round_, text=live)
        if self.verbose and text and (round_ % self.every == 0 or round_ == self.total):
            self.note(f"round {round_:>{len(str(self.total))}}/{self.total}  {text}  {speed:.2f} rounds/s")

    def count(self, seconds: dict[str, Any]) -> None:
        for name in self.spent:
            self.spent[name] += seconds.get(name, 0.0)

    def shares(self) -> str:
        """Where the time goes, in percent."""
        total = sum(self.spent.values()) or 1.0
        return " ".join(f"{name} {100 * spent / total:.0f}%" for name, spent in self.spent.items())


def describe(record: dict[str, Any]) -> str:
    """The evaluation in a round's record, if there is one."""
    parts = []
    if record.get("accuracy") is not None:
        parts.append(f"accuracy {record['accuracy']:.4f}")
    if record.get("loss") is not None:
        parts.append(f"loss {record['loss']:.4f}")
    return "  ".join(parts)
