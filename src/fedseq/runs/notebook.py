"""A progress bar where a notebook shows the output, without widgets: one line of HTML that is written again."""

import sys
import time
from html import escape
from pathlib import Path
from typing import Any

from fedseq.options.config import Config
from fedseq.training.reporter import QUIET, Reporter

EVERY = 0.2  # seconds between two looks of the bar; a notebook keeps up with few


def default_reporter() -> Reporter:
    """A bar in a notebook; elsewhere nothing, as output belongs to whoever called."""
    return NotebookReporter() if in_notebook() else QUIET


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this. IPython in a terminal has no kernel, and is left in peace."""
    ipython = sys.modules.get("IPython")
    return getattr(ipython and ipython.get_ipython(), "kernel", None) is not None


class NotebookReporter:
    def __init__(self) -> None:
        self.handle: Any = None  # of the output that is written again
        self.shown = 0.0
        self.total = 0
        self.began = (0.0, 0)  # when, and after which round
        self.name = self.accuracy = ""

    def stage(self, done: int, total: int, what: str) -> None:
        self._show(done, total, what, at_once=done >= total)

    def note(self, text: str) -> None:
        sys.stdout.write(f"{text}\n")

    def begin(self, config: Config, folder: Path, round_: int) -> None:
        self.name, self.total = f"{config.algorithm} on {config.dataset}", config.rounds or 0
        self.began = (time.monotonic(), round_)
        self._show(round_, self.total, self.name, at_once=True)

    def round(self, record: dict[str, Any]) -> None:
        round_ = record["round"]
        if record.get("accuracy") is not None:
            self.accuracy = f", accuracy {record['accuracy']:.4f}"
        left = (time.monotonic() - self.began[0]) / (round_ - self.began[1]) * (self.total - round_)
        waiting = f", {left:.0f} s left" if round_ < self.total else ""
        text = f"{self.name}: round {round_} of {self.total}{self.accuracy}{waiting}"
        self._show(round_, self.total, text, at_once=round_ == self.total)

    def _show(self, done: int, total: int, text: str, at_once: bool) -> None:
        now = time.monotonic()
        if not at_once and now - self.shown < EVERY:
            return
        from IPython.display import HTML, display

        self.shown = now
        bar = HTML(f'<progress value="{done}" max="{total}" aria-label="progress"></progress> {escape(text)}')
        if self.handle is None:
            self.handle = display(bar, display_id=True)
        else:
            self.handle.update(bar)
