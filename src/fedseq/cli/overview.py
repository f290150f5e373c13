"""What a person sees of many runs at a time, for `fedseq sweep` and `fedseq paper`."""

import shlex
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedseq.basics.stopping import INTERRUPTED
from fedseq.cli.console import describe, live_progress
from fedseq.runs.reading import last_record

if TYPE_CHECKING:
    from fedseq.sweep.assignments import Assignment
    from fedseq.sweep.pool import Event

HEARTBEAT = 60.0  # seconds between lines about what is running, on a pipe


def work_through_visibly(assignments: Sequence["Assignment"], jobs: int, console: Any) -> int:
    """Do what is not done yet, with one overview. 0, 2 if something failed, now or before, 130 after Ctrl-C."""
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
