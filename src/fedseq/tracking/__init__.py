"""Rounds as TensorBoard, Weights & Biases and MLflow keep them: while a run goes on, or afterwards.

Everything is written below RUN/tracking, and nothing is sent anywhere unless the user's own environment says so. It is
what metrics.jsonl holds that is tracked: a run that was killed and continued has every point once.
"""

import importlib.util
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from fedseq.basics.errors import FedSeqError, in_short
from fedseq.basics.files import read_plain, write_atomically
from fedseq.options.config import Config
from fedseq.options.grammar import trackers_of
from fedseq.options.tables import TRACKERS

Record = Mapping[str, Any]


class Tracker(Protocol):
    def write(self, round_: int, scalars: Mapping[str, float]) -> None: ...

    def close(self, finished: bool) -> None: ...


def check_installed(config: Config) -> None:
    """What a user has asked for by name has to be there before the run begins."""
    for name in trackers_of(config.track):
        if importlib.util.find_spec(TRACKERS[name].package) is None:
            raise FedSeqError(
                f"--track {name} needs a package that is not installed. In FedSeq's folder: pip install '.[{name}]'   "
                "or leave it out with --track none."
            )


def scalars(record: Record) -> dict[str, float]:
    """All numbers of a round by name; those of classes, and of parts that have names of their own, behind a slash."""
    found: dict[str, float] = {}
    classes = dict(enumerate(record.get("per_class_accuracy") or ()))
    for name, value in {**record, "class_accuracy": classes}.items():
        parts = {f"{name}/{key}": part for key, part in value.items()} if isinstance(value, Mapping) else {name: value}
        found |= {
            key: float(part)
            for key, part in parts.items()
            if isinstance(part, int | float) and not isinstance(part, bool)
        }
    del found["round"]
    return found


@contextmanager
def tracked(
    config: Config, place: Path, history: Sequence[Record], note: Callable[[str], None]
) -> Iterator[Callable[[Record], None] | None]:
    """A function that passes each new round to the trackers that the config names; they know of `history` already.
    None where it names none.

    `place` is their folder in the run folder. A tracker that fails is told of once and left out from then on. It never
    stops a run.
    """
    trackers: dict[str, Tracker] = {}

    def attempt(name: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - whatever other people's packages may raise
            trackers.pop(name, None)
            note(f"nothing more is tracked by {name}: {in_short(error)}")

    def begin(name: str) -> None:
        trackers[name] = _opened(name, config, place, history)

    def pass_on(record: Record) -> None:
        found = scalars(record)
        for name, tracker in list(trackers.items()):
            attempt(name, partial(tracker.write, record["round"], found))

    def close(finished: bool) -> None:
        for name, tracker in list(trackers.items()):
            attempt(name, partial(tracker.close, finished))

    for name in trackers_of(config.track):
        attempt(name, partial(begin, name))
    try:
        yield pass_on if trackers_of(config.track) else None
    except BaseException:  # also Ctrl-C: a tracked run is told that it did not end
        close(finished=False)
        raise
    close(finished=True)


def _opened(name: str, config: Config, place: Path, history: Sequence[Record]) -> Tracker:
    refuse_links(place, place / name)
    place.mkdir(exist_ok=True)
    tracker: Tracker = TRACKERS[name].load()(place, place.absolute().parent.name, config.options())
    for record in history:
        tracker.write(record["round"], scalars(record))
    return tracker


def refuse_links(*paths: Path) -> None:
    for path in paths:
        if path.is_symlink():
            raise FedSeqError(f"{path} is a symbolic link, and nothing is written through links. Remove it.")


def export(names: Sequence[str], config: Config, place: Path, metrics: Sequence[Record], finished: bool) -> None:
    """Write all rounds of a run as they are."""
    for name in names:
        _opened(name, config, place, metrics).close(finished)


def emptied(folder: Path) -> Path:
    """A folder of ours without what it held: it is written anew from the run's metrics."""
    if folder.exists():
        shutil.rmtree(folder)
    return folder


def kept_name(path: Path) -> str | None:
    """The name under which a tracker knows this run, if it does; a folder of someone else's may say anything here."""
    try:
        text = read_plain(path).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return None
    return text if re.fullmatch(r"[0-9a-zA-Z]{1,64}", text) else None


def keep_name(path: Path, name: str) -> str:
    write_atomically(path, f"{name}\n".encode())
    return name
