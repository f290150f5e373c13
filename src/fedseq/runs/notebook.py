"""Runs in a notebook: a bar while one goes on, without widgets; then a line, a curve and a table."""

import io
import sys
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedseq.basics.errors import FedSeqError
from fedseq.options.config import Config
from fedseq.training.reporter import QUIET, Reporter

if TYPE_CHECKING:
    from pandas import DataFrame

Curve = Sequence[tuple[int, float]]
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


def as_frame(metrics: Sequence[dict[str, Any]]) -> "DataFrame":
    try:
        import pandas
    except ImportError as error:
        raise FedSeqError("run.frame() needs pandas, which is missing: pip install '.[notebook]'") from error
    return pandas.DataFrame(metrics, columns=None if metrics else ["round"]).set_index("round")


def as_html(text: str, folder: str, curve: Curve, rounds: int) -> str:
    picture = curve_svg(curve, rounds, f"Accuracy over rounds: {text}") if curve else ""
    return f"<div>{escape(text)}<br><code>{escape(folder)}</code><br>{picture}</div>"


def curve_svg(curve: Curve, rounds: int, described: str) -> str:
    """Accuracy (0..1) over rounds; `described` is what the picture says to those who do not see it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 1.7), layout="constrained")
    axes = figure.subplots()
    axes.plot(*zip(*curve, strict=True), marker="o", markevery=[-1], gid="line2d_curve")
    axes.set(xlim=(1, max(rounds, 2)), ylim=(0, 1), xlabel="round", ylabel="accuracy")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Title": described, "Date": None})
    return drawn.getvalue()[drawn.getvalue().index("<svg") :]
