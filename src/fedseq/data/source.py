"""A published data set found on disk, in one of the forms it comes in."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedseq.data.dataset import Arrays, Progress


@dataclass(frozen=True)
class Source:
    """The files of one form, of which at least one is there, and the function that reads them all."""

    files: tuple[Path, ...]
    read: Callable[[Progress], Arrays]

    @property
    def missing(self) -> list[Path]:
        return [file for file in self.files if not file.is_file()]

    @property
    def where(self) -> str:
        return str(self.files[0] if len(self.files) == 1 else self.files[0].parent)
