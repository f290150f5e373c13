"""Telling a person how a run goes. `Quiet` says nothing; the command line has a reporter that draws."""

import warnings
from pathlib import Path
from typing import Any, Protocol

from fedseq.options.config import Config


class Reporter(Protocol):
    def stage(self, done: int, total: int, what: str) -> None:
        """Long work before the first round, e.g. decoding or pre-training."""
        return

    def note(self, text: str) -> None:
        return

    def begin(self, config: Config, folder: Path, round_: int) -> None:
        return

    def round(self, record: dict[str, Any]) -> None:
        return


class Quiet(Reporter):
    """Every method does nothing."""


QUIET = Quiet()


class Steadfast:
    """Passes on to a reporter until it fails; a failing reporter is given up with a warning and never stops a run."""

    def __init__(self, reporter: Reporter):
        self.reporter: Reporter = reporter

    def _pass_on(self, name: str, *arguments: Any) -> None:
        try:
            getattr(self.reporter, name)(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever a user's reporter may raise
            warnings.warn(f"the reporter failed and is left out from now on: {error!r}", stacklevel=2)
            self.reporter = QUIET

    def stage(self, done: int, total: int, what: str) -> None:
        self._pass_on("stage", done, total, what)

    def note(self, text: str) -> None:
        self._pass_on("note", text)

    def begin(self, config: Config, folder: Path, round_: int) -> None:
        self._pass_on("begin", config, folder, round_)

    def round(self, record: dict[str, Any]) -> None:
        self._pass_on("round", record)
