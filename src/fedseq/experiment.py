"""From a config, or from a user's own model and data, to a finished run folder."""

import contextlib
import json
import signal
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fedseq import weights
from fedseq.algorithms.base import Setting, initial_state, signature
from fedseq.checkpoints import LINE_FILES, Progress, load_checkpoint
from fedseq.config import FIELDS, FREE_TO_CHANGE, Config, flag, known, resolve
from fedseq.configfile import from_mapping, read_yaml, to_yaml
from fedseq.data.partition import label_counts
from fedseq.engines import ENGINES, Engine
from fedseq.errors import FedSeqError
from fedseq.failures import attackers
from fedseq.federation import Interrupted, final_model, run_rounds
from fedseq.files import remove_leftovers, write_atomically, write_json
from fedseq.jobs import Task
from fedseq.parts import Parts, initial_weights, named_parts
from fedseq.planning import Federation, Unit, units_per_round
from fedseq.progress import QUIET, Reporter, Steadfast
from fedseq.results import Run, lock, new_folder, read_run, refuse_existing_run, write_description
from fedseq.superclients import form_superclients
from fedseq.training import build, one_thread


def run(
    config: Config | Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
    *,
    reporter: Reporter = QUIET,
    **options: Any,
) -> Run:
    """Run an experiment by names, e.g. run(dataset="digits", algorithm="fedseq", rounds=30).

    The run folder is a new one under runs/ unless given; a folder that holds an unfinished run with the same config is
    continued.
    """
    base = config if isinstance(config, Config) else from_mapping(config or {})
    resolved = resolve(from_mapping(options, base))
    return execute(named_parts(resolved, reporter), run_folder(folder, resolved), reporter)


def resume(folder: str | Path, *, reporter: Reporter = QUIET, **changes: Any) -> Run:
    """Continue a run by names from its last checkpoint, bit for bit as if it had never stopped."""
    folder = Path(folder)
    read_run(folder)
    saved = from_mapping(read_yaml(folder / "config.yaml"))
    if saved.engine == "flower":
        raise FedSeqError(f"{folder} belongs to a federation: fedseq federation run DIR, or flwr run, continues it.")
    if changes.get("engine", "ray") != "ray":
        changes = {"ray_address": None, **changes}  # what the run so far used means nothing to another engine
    if saved.dataset == "own":
        raise FedSeqError(f"{folder} was made in Python with data of its own: call the same function with this folder.")
    return execute(named_parts(resolve(from_mapping(changes, saved)), reporter), folder, reporter)


def run_folder(folder: str | Path | None, config: Config) -> Path:
    if folder == "":
        raise FedSeqError("the run folder's name is empty. Give another with --out.")
    if folder is None:
        dataset = config.dataset.replace(":", "-").replace("/", "-")
        return new_folder(Path("runs"), f"{dataset}-{config.algorithm}-seed{config.seed}")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FedSeqError(f"can't make the run folder {folder}: {error.strerror}. Choose another.") from None
    return Path(folder)


def execute(
    parts: Parts,
    folder: Path,
    reporter: Reporter = QUIET,
    make_engine: Callable[[Config, Task], Engine] | None = None,
) -> Run:
    """Run, or continue, in this folder, on the engine that the config names unless one is given."""
    config, task, reporter = parts.config, parts.task, Steadfast(reporter)
    with (
        lock(folder),
        _terminate_as_interrupt(),
        one_thread(),
    ):  # the server's sums need no second one, which would compete with the workers
        remove_leftovers(folder)
        _describe(parts, folder)
        engine = (make_engine or open_engine)(config, task)  # before the checkpoint, which workers would keep alive
        try:
            saved = load_checkpoint(folder / "checkpoints", config.device)
            if saved is not None and read_run(folder).finished:
                return read_run(folder)
            model = build(task)
            theta = initial_weights(config, task, model)
            units = _units(parts, folder, engine, theta, reporter)
            per_round = units_per_round(config.fraction, len(units))
            setting = Setting(len(task.clients), len(units), per_round, len(model.parameters))
            federation = Federation(
                config=config,
                algorithm=parts.algorithm,
                units=units,
                sizes=[len(indices) for indices in task.clients],
                attackers=attackers(config, len(task.clients)),
                setting=setting,
                folder=folder,
            )
            progress = _continue(folder, saved) or Progress(0, initial_state(parts.algorithm, theta, setting))
            reporter.begin(config, folder, progress.round)
            if not (saved and read_run(folder).complete):
                for record, progress in run_rounds(federation, engine, progress):  # noqa: B007, B020
                    reporter.round(record)
        except KeyboardInterrupt:
            raise Interrupted(folder) from None
        finally:
            engine.close()
        weights.save(folder / "weights.safetensors", weights.named(model, final_model(federation, progress.state)))
    return read_run(folder)


@contextlib.contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """SIGTERM before the first round, which has its own way to stop, is taken as Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def open_engine(config: Config, task: Task) -> Engine:
    return ENGINES[config.engine or "serial"](task, config)


def _units(parts: Parts, folder: Path, engine: Engine, theta: Tensor, reporter: Reporter) -> Sequence[Unit]:
    """The clients that hold examples, or the superclients they are grouped into."""
    holders = [client for client, indices in enumerate(parts.task.clients) if len(indices)]
    if not parts.algorithm.superclients:
        return [(client,) for client in holders]
    path = folder / "superclients.json"
    if not path.exists():
        write_json(path, _group(parts, folder, engine, theta, reporter))
    formed = [tuple(group) for group in json.loads(path.read_text())["superclients"]]
    if parts.groups is not None and formed != list(parts.groups):
        raise FedSeqError(f"{folder} holds a run with other groups. Choose another folder.")
    return formed


def _group(parts: Parts, folder: Path, engine: Engine, theta: Tensor, reporter: Reporter) -> dict[str, Any]:
    if parts.groups is not None:
        return {"method": "given", "superclients": [list(group) for group in parts.groups]}
    formed = form_superclients(
        parts.config, parts.task, parts.exemplars, engine, theta, folder / "pretraining", reporter
    )
    return formed.describe()


def _continue(folder: Path, saved: tuple[Progress, dict[str, int]] | None) -> Progress | None:
    """Where the last checkpoint stands; lines written after it are cut off, as their rounds are run again."""
    if saved is None:
        for name in LINE_FILES:
            (folder / name).unlink(missing_ok=True)
        return None
    progress, positions = saved
    for name in LINE_FILES:
        with (folder / name).open("ab") as file:
            file.truncate(positions[name])
    return progress


def _describe(parts: Parts, folder: Path) -> None:
    """Write down what is run; in a folder that holds a run already, refuse to continue it as another one."""
    clients = {**_describe_clients(parts.task), "algorithm": signature(parts.algorithm)}
    if not (folder / "config.yaml").exists():
        refuse_existing_run(folder)
        write_json(folder / "clients.json", clients)
        write_description(folder, parts.config)
        return
    saved = from_mapping(read_yaml(folder / "config.yaml"))
    _refuse_changes(saved, parts.config, folder)
    before = json.loads((folder / "clients.json").read_text())
    if before["fingerprint"] != clients["fingerprint"]:
        raise FedSeqError(f"{folder} was run on other data than what is loaded now. Give the data it was started with.")
    if before["algorithm"] != clients["algorithm"]:
        raise FedSeqError(f"{folder} holds a run of an algorithm with other parts or hyper-parameters. Choose another.")
    done = read_run(folder).rounds
    if done > known(parts.config.rounds):
        raise FedSeqError(f"{folder} has run {done} rounds already. Ask for at least as many with --rounds.")
    write_atomically(folder / "config.yaml", to_yaml(parts.config).encode())


def _refuse_changes(saved: Config, asked: Config, folder: Path) -> None:
    free = FREE_TO_CHANGE - ({"rounds"} if saved.lr_schedule == "cosine" else set())
    changed = [
        f"{flag(name)} {getattr(saved, name)} -> {getattr(asked, name)}"
        for name in FIELDS
        if name not in free and getattr(saved, name) != getattr(asked, name)
    ]
    if changed:
        raise FedSeqError(f"{folder} holds a run with other options: {', '.join(changed)}. Choose another folder.")


def _describe_clients(task: Task) -> dict[str, Any]:
    """Who holds what, and a fingerprint of the data by which a continued run recognises it."""
    fingerprint = 0
    for tensor in (task.train.x, task.train.y, task.test.x, task.test.y):
        fingerprint = zlib.crc32(np.ascontiguousarray(tensor.cpu().numpy()).data, fingerprint)
    for indices in task.clients:
        fingerprint = zlib.crc32(np.ascontiguousarray(indices, dtype=np.int64).data, fingerprint)
    described: dict[str, Any] = {"fingerprint": f"{fingerprint:08x}", "examples": [len(i) for i in task.clients]}
    if task.num_classes and len(task.train.y):  # a federation's server does not see its clients' labels
        described["label_counts"] = label_counts(task.train.y.cpu().numpy(), task.clients, task.num_classes).tolist()
    return described
