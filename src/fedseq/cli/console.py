"""What a person sees while a command works: a live bar on a terminal, plain lines on a pipe."""

import shlex
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from fedseq.basics.errors import harmless
from fedseq.basics.stopping import INTERRUPTED
from fedseq.options.config import Config
from fedseq.report.costs import human_seconds
from fedseq.report.formats import TextTable, to_markdown
from fedseq.runs.reading import last_record

if TYPE_CHECKING:
    from fedseq.sweep.assignments import Assignment
    from fedseq.sweep.pool import Event

PIPE_WIDTH = 10_000  # a pipe has no width: nothing is folded
LONG = 300.0  # seconds; work that takes longer is said to, as soon as that is known
MEASURED = 3  # rounds, after the first, which warms up
HEARTBEAT = 60.0  # seconds between lines about what is running, on a pipe


class _Console(Console):
    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(harmless(shown) if isinstance(shown, str) else shown for shown in objects), **options)


def make_console(stderr: bool = False) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    return _Console(
        stderr=stderr, width=None if stream.isatty() else PIPE_WIDTH, highlight=False, soft_wrap=not stream.isatty()
    )


def print_table(console: Console, table: TextTable) -> None:
    """A table for the eye, or a block for each row where the terminal is too narrow for it; on a pipe Markdown."""
    table = replace(table, rows=[[harmless(" ".join(cell.splitlines())) for cell in row] for row in table.rows])
    if not console.is_terminal:
        console.print(to_markdown(table), markup=False, end="")
        return
    room = console.width - 3 * len(table.columns) - 1
    columns = zip(table.columns, *table.rows, strict=True)  # a head may break between its words, a cell may not
    narrow = [max(map(len, [*head.split(" "), *cells])) for head, *cells in columns]
    if sum(narrow) > room:
        console.print(_blocks(table, console.width), markup=False, soft_wrap=True)
        return
    widths = table.widths() if sum(table.widths()) <= room else narrow
    drawn = Table(title=escape(table.title) or None, caption=escape(table.caption) or None, title_justify="left",
                  caption_justify="left")  # fmt: skip
    for number, (name, width) in enumerate(zip(table.columns, widths, strict=True)):
        drawn.add_column(escape(name), justify="left" if number < table.left else "right", width=width)
    for row in table.rows:
        drawn.add_row(*map(escape, row))
    console.print(drawn)


def _blocks(table: TextTable, width: int) -> str:
    """The first cell of a row, and below it the others with their names, as many on a line as it holds."""
    lines = [table.title] if table.title else []
    for first, *others in table.rows:
        lines += [first, "  "]
        for name, cell in zip(table.columns[1:], others, strict=True):
            item = f"{name}: {cell}"
            if cell and len(lines[-1]) > 2 and len(lines[-1]) + len(item) + 3 > width:
                lines.append("  ")
            lines[-1] += ("" if len(lines[-1]) == 2 else " · ") + item if cell else ""
    return "\n".join([*lines, *textwrap.wrap(table.caption, width)])


def live_progress(console: Console) -> Progress:
    """A bar per task; on a pipe it draws nothing. Bar, count and time left stay whole, the rest takes what is left."""
    name = Column(no_wrap=True, overflow="ellipsis", max_width=max(12, console.width - 52))
    return Progress(
        TextColumn("{task.description:<12}", table_column=name), BarColumn(bar_width=20), MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[text]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
        console=console, disable=not console.is_terminal, expand=True,
    )  # fmt: skip


class ConsoleReporter:
    """Prints each evaluation; use it as a context around the work."""

    def __init__(self, console: Console, verbose: bool = True, progress: Progress | None = None):
        self.console = console
        self.verbose = verbose  # print a line per evaluation, not only the bar
        self.progress = progress or live_progress(console)
        self.stages: dict[str, Any] = {}
        self.stage_began: dict[str, tuple[float, int] | None] = {}
        self.task: Any = None
        self.total = 0
        self.every = 1
        self.began = self.warm = (0.0, 0)
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
            self.stage_began[what] = (time.monotonic(), done)
        self.progress.update(self.stages[what], completed=done, visible=done < total)
        if (began := self.stage_began[what]) and done - began[1] >= total / 50:
            self.stage_began[what] = None
            self._say_if_long(what, (total - done) * (time.monotonic() - began[0]) / (done - began[1]))

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

    def _say_if_long(self, what: str, seconds: float) -> None:
        if self.verbose and seconds > LONG:
            self.note(f"{what}: {human_seconds(seconds)} to go")

    def round(self, record: dict[str, Any]) -> None:
        round_ = record["round"]
        if round_ == self.began[1] + 1:
            self.warm = (time.monotonic(), round_)
        elif round_ == self.began[1] + 1 + MEASURED:
            each = (time.monotonic() - self.warm[0]) / MEASURED
            what = f"{self.total} rounds of {each:.2g} s (Ctrl-C stops the run; fedseq resume goes on)"
            self._say_if_long(what, (self.total - round_) * each)
        speed = (round_ - self.began[1]) / max(time.monotonic() - self.began[0], 1e-9)
        text = describe(record)
        for name in self.spent:
            self.spent[name] += record.get("seconds", {}).get(name, 0.0)
        total = sum(self.spent.values()) or 1.0
        shares = " ".join(f"{name} {100 * spent / total:.0f}%" for name, spent in self.spent.items())
        live = f"{text or '...'}  {speed:.2f} rounds/s  {shares}"
        self.progress.update(self.task, completed=round_, text=live)
        if self.verbose and text and (round_ % self.every == 0 or round_ == self.total):
            self.note(f"round {round_:>{len(str(self.total))}}/{self.total}  {text}  {speed:.2f} rounds/s")


def describe(record: dict[str, Any]) -> str:
    """The evaluation in a round's record, if there is one."""
    parts = []
    if record.get("accuracy") is not None:
        parts.append(f"accuracy {record['accuracy']:.4f}")
    if record.get("loss") is not None:
        parts.append(f"loss {record['loss']:.4f}")
    if parts and record.get("epsilon") is not None:
        parts.append(f"epsilon {record['epsilon']:.3g}")
    return "  ".join(parts)


def work_through_visibly(assignments: Sequence["Assignment"], jobs: int, console: Any) -> int:
    """Do what is not done yet of many runs, with one overview, for `fedseq sweep` and `fedseq paper`.

    The exit code: 0, 2 if something failed, now or before, 130 after Ctrl-C.
    """
    from fedseq.sweep.assignments import diverged, failure, is_done
    from fedseq.sweep.pool import work_through

    todo = [assignment for assignment in assignments if not is_done(assignment)]
    before = [one for one in assignments if one not in todo and not one.epochs and diverged(one.folder)]
    done, total = len(assignments) - len(todo), len(assignments)
    gone = f", {len(before)} diverged before" if before else ""
    told = f"{done - len(before)} of {total} finished{gone}, {len(todo)} to do, {min(jobs, len(todo))} at a time"
    console.print(told, markup=False)
    outcomes = {assignment: failure(assignment.folder) for assignment in before}
    if todo:
        try:
            with Overview(console, total, done) as overview:
                outcomes |= work_through(todo, jobs, overview.show)
        except KeyboardInterrupt:
            again = shlex.join(["fedseq", *sys.argv[1:]])
            console.print(f"interrupted and saved. Continue with: {again}", markup=False, soft_wrap=True)
            return INTERRUPTED
    failed = {assignment: outcome for assignment, outcome in outcomes.items() if outcome != "finished"}
    for assignment, outcome in failed.items():
        console.print(f"not finished: {assignment.label}: {outcome}", markup=False)
    return 2 if failed else 0


class Overview:
    """A bar for all, and one for each assignment being worked on; on a pipe, a line for each that ends."""

    def __init__(self, console: Any, total: int, done: int) -> None:
        self.console, self.total, self.done = console, total, done
        self.progress = live_progress(console)
        self.whole = self.progress.add_task("all", total=total, completed=done, text="")
        self.running: dict[Assignment, tuple[Any, float]] = {}
        self.last_heartbeat = time.monotonic()

    def __enter__(self) -> "Overview":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def show(self, event: "Event") -> None:
        assignment = event.assignment
        if event.kind == "started" and assignment:
            bar = self.progress.add_task(assignment.label, total=assignment.config.rounds or 0, text="")
            self.running[assignment] = (bar, time.monotonic())
        elif event.kind == "ended" and assignment:
            bar, began = self.running.pop(assignment)
            self.progress.remove_task(bar)
            self.done += 1
            self.progress.update(self.whole, completed=self.done)
            result = "" if assignment.epochs else describe(last_record(assignment.folder) or {})
            how = ", ".join(filter(None, [event.outcome, result, f"{time.monotonic() - began:.0f} s"]))
            self.progress.console.print(f"[{self.done}/{self.total}] {assignment.label}: {how}", markup=False)
        else:
            self._look()

    def _look(self) -> None:
        where = []
        for assignment, (bar, _) in self.running.items():
            record = last_record(assignment.folder) or {}
            self.progress.update(bar, completed=record.get("round", 0), text=describe(record))
            rounds = "" if assignment.epochs else f": round {record.get('round', 0)}/{assignment.config.rounds}"
            where.append(assignment.label + rounds)
        if not self.console.is_terminal and time.monotonic() - self.last_heartbeat > HEARTBEAT:
            self.last_heartbeat = time.monotonic()
            self.console.print(f"[{self.done}/{self.total}] working on {'; '.join(where)}", markup=False)
