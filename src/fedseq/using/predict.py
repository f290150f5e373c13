"""Using a trained model: evaluate a run, classify new inputs, load it into other code.

A run folder or its weights.safetensors alone will do: what the model is and what its inputs are stands in the file.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from fedseq.basics.errors import FedSeqError
from fedseq.basics.identity import function_name
from fedseq.data import Dataset, load_labelled
from fedseq.data.own_files import pictures_below
from fedseq.data.pictures import decode_resized
from fedseq.data.untrusted import read_array
from fedseq.models import Factory, kernels, model_factory, own_factory
from fedseq.options.config import Config
from fedseq.options.config_files import refuse_code
from fedseq.options.datasets import OWN
from fedseq.policies.attackers import honest_at_first, poisoned
from fedseq.rounds.open_run import refuse_edited
from fedseq.rounds.prepare import deal, examples_of, read_dataset, split_test, test_of
from fedseq.runs.folder import CLIENTS, RunFolder
from fedseq.runs.manifests import newest_evidence
from fedseq.runs.model_card import ModelCard, read_card
from fedseq.runs.reading import read_run
from fedseq.training import weights
from fedseq.training.evaluation import Evaluation, evaluate, predict
from fedseq.training.examples import Examples, fingerprint
from fedseq.training.jobs import Task, check_device
from fedseq.training.reporter import QUIET, Reporter
from fedseq.training.sgd import one_thread
from fedseq.training.weights import FlatModel, flatten

OwnModel = str | Callable[..., nn.Module]  # package.module:Class, or the class or function itself


@dataclass(frozen=True)
class TrainedModel:
    card: ModelCard
    factory: Factory
    model: FlatModel
    device: str
    config: Config | None  # of the run; None for weights alone


class Prediction(NamedTuple):
    input: str
    class_name: str
    probability: float


def load_trained(
    where: str | Path,
    *,
    best: bool = False,
    model: OwnModel | None = None,
    trust: bool = False,
    device: str = "cpu",
) -> TrainedModel:
    """Of a run folder, the final model or the best one; or of a file of weights.

    `model` is needed where it was given in Python; `trust` lets the folder name code of its own, which is run then.
    """
    file, config = _weights_of(Path(where), best)
    card = read_card(file) or _card_of_earlier(file, config)
    named = model if isinstance(model, str) else card.model
    if model is None and card.model == OWN:
        raise FedSeqError(
            f"{where} was trained in Python with a model that has no name. Give it again, as --model "
            "package.module:Class or, in Python, fedseq.load_model(folder, model=...)."
        )
    refuse_code({"model": named}, where, () if model is None else ("model",), trust)
    if model is None or isinstance(model, str):
        factory = model_factory(named, card.shape, card.num_classes)
    else:
        factory = own_factory(model, function_name(model), card.shape, card.num_classes)
    if ":" not in named and (model is None or isinstance(model, str)):
        with torch.device("meta"):  # takes no memory, whatever size the file claims
            weights.refuse_misfit(file, weights.load(file), factory())
    check_device(device)
    built = flatten(factory(), device)
    weights.read(file, built)
    # The kernels that it was trained with give the same bits; elsewhere it is the same model to the last digits.
    fast = config is not None and config.kernels == "fast" and device == "cpu" and kernels.available() is None
    kernels.choose(built.module, "fast" if fast else "torch")
    built = replace(built, precision=config.precision if config else "float32")
    return TrainedModel(card, factory, built, device, config)


def _weights_of(where: Path, best: bool) -> tuple[Path, Config | None]:
    if where.is_file():
        return where, None
    run = read_run(where)
    if not run.has_weights:
        how = "fedseq federation run DIR" if run.config.engine == "flower" else f"fedseq resume {where}"
        raise FedSeqError(f"{where} has no weights.safetensors yet. Finish it with: {how}")
    files = RunFolder(run.folder)
    file = files.checked_weights(best)
    refuse_edited(files, run.config)
    return file, run.config


def _card_of_earlier(file: Path, config: Config | None) -> ModelCard:
    """Weights that do not say what they are of, by an earlier version: the run's data set tells."""
    if config is None or config.dataset == OWN or config.model is None:
        raise FedSeqError(f"{file} does not say which model it is of. Make it again with: fedseq run")
    dataset = _data_of(RunFolder(file.parent), config, QUIET)[0]
    kind, scaling = dataset.x_test.dtype.name, (part.tolist() for part in dataset.scale or ())
    return ModelCard(config.model, dataset.shape, kind, dataset.class_names, dataset.mean, dataset.std, *scaling)


def load_model(
    folder: str | Path, *, best: bool = False, model: OwnModel | None = None, trust: bool = False
) -> nn.Module:
    """A run's trained model, ready to predict (its inputs are scaled as model.json in the folder says).

    `best` gives the one of its best evaluation, which runs with `patience` keep, instead of the last. A model that was
    given in Python has to be given again. Code that the folder names, such as a model of somebody's own, is imported
    only with `trust`.
    """
    return load_trained(folder, best=best, model=model, trust=trust).model.module.eval()


def evaluate_run(
    folder: str | Path,
    reporter: Reporter = QUIET,
    *,
    best: bool = False,
    data: str | None = None,
    data_dir: str | None = None,
    model: OwnModel | None = None,
    trust: bool = False,
    device: str = "cpu",
) -> tuple[Evaluation, tuple[str, ...]]:
    """Loss and accuracy of the final model on the run's test set, or on other labelled examples; names of classes."""
    trained = load_trained(folder, best=best, model=model, trust=trust, device=device)
    if not trained.card.num_classes:
        raise FedSeqError(f"{folder} was trained on targets that are numbers. Evaluate it in Python, with its loss.")
    test = _test_set(Path(folder), trained, data, data_dir, reporter)
    test = replace(test, x=test.x.to(device), y=test.y.to(device))
    task = Task(trained.factory, test, [], test, trained.card.num_classes)
    with one_thread(), _known_symbols(trained.card):
        found = evaluate(task, trained.model, trained.model.vector.clone())
    if found.undefined:
        raise FedSeqError(
            f"for {found.undefined} of {len(test.y)} examples the outputs of the model in {folder} are not numbers "
            "(NaN), so it has no accuracy: its training diverged, or the examples hold values it was not trained on."
        )
    return found, trained.card.class_names


def _test_set(
    folder: Path, trained: TrainedModel, data: str | None, data_dir: str | None, reporter: Reporter
) -> Examples:
    config = trained.config
    if data is not None:
        return _labelled(data, trained.card)
    if config is None:
        raise FedSeqError(f"{folder} has no test set: name labelled examples, as --data npz:FILE or folder:DIR.")
    files = RunFolder(folder)
    if config.dataset != OWN:
        return _data_of(files, replace(config, data_dir=data_dir or config.data_dir), reporter)[1]
    source = files.read_model().get("test")
    if not source:
        raise FedSeqError(
            f"{folder} was trained in Python, on data that is not kept. "
            "Name labelled examples, as --data npz:FILE or folder:DIR."
        )
    _, test = split_test(config, _labelled(str(source), trained.card), trained.card.class_names)
    _refuse_other_data(files, None, test)
    return test


def _data_of(files: RunFolder, config: Config, reporter: Reporter) -> tuple[Dataset, Examples]:
    """The run's data set, and the part of it that the run is tested on."""
    dataset = read_dataset(config, reporter)
    _, test = split_test(config, test_of(config, dataset), dataset.class_names)
    held = None
    if config.engine != "flower":
        train, clients = examples_of(dataset, dataset.x_train, dataset.y_train), deal(config, dataset)
        if not honest_at_first(config):
            train = poisoned(config, train, clients, dataset.num_classes)
        held = train, clients
    _refuse_other_data(files, held, test)
    return dataset, test


def _refuse_other_data(files: RunFolder, held: tuple[Examples, Sequence[np.ndarray]] | None, test: Examples) -> None:
    """Refuse data that is not what the run began with: rows that it was trained on may be among those to test with.

    `held` is what its clients hold; None in a federation, whose server knows how much that is and no more.
    """
    clients = files.read_clients() or {}
    began = newest_evidence(files.checkpoints) or clients
    if "data" not in began:
        raise FedSeqError(
            f"{files.path} no longer says which data it was run on: {CLIENTS} is gone. Name labelled examples with "
            "--data."
        )
    train, indices = held or (
        Examples(test.x[:0], test.y[:0]), [np.zeros(size, np.int64) for size in clients.get("examples", ())]
    )  # fmt: skip
    if fingerprint(train, indices, test) != began["data"]:
        raise FedSeqError(
            f"{files.path} was run on other data than what is loaded now. Give the data it was started with, or name "
            "labelled examples with --data."
        )


def _labelled(source: str, card: ModelCard) -> Examples:
    found = load_labelled(source, card.class_names, "float64" if card.dtype == "float64" else "float32")
    kind, shape = found.x.dtype.name, found.x.shape[1:]
    if (kind, shape) != (card.dtype, card.shape):
        raise FedSeqError(
            f"{source} holds {kind} inputs of shape {list(shape)}; the model takes {card.dtype} of {list(card.shape)}."
        )
    return Examples(torch.from_numpy(card.scaled(found.x)), torch.from_numpy(found.y), card.mean, card.std)


@contextmanager
def _known_symbols(card: ModelCard) -> Iterator[None]:
    """A model of text looks symbols up in a table, of which nothing but the model knows the length."""
    try:
        yield
    except IndexError:
        if card.dtype != "int64":
            raise
        raise FedSeqError(
            "the inputs hold symbols that the model has no entry for. Encode them as its training data was."
        ) from None


def predict_run(
    where: str | Path,
    *files: str | Path,
    reporter: Reporter = QUIET,
    best: bool = False,
    model: OwnModel | None = None,
    trust: bool = False,
    device: str = "cpu",
) -> list[Prediction]:
    """The likeliest class of each input in these files and folders, and its probability."""
    trained = load_trained(where, best=best, model=model, trust=trust, device=device)
    names = trained.card.class_names
    if not names:
        raise FedSeqError(f"{where} was trained on targets that are numbers. Load it in Python: fedseq.load_model.")
    inputs = read_inputs([Path(file) for file in files], trained.card)
    for note in inputs.notes:
        reporter.note(note)
    x = torch.from_numpy(trained.card.scaled(inputs.x)).to(device)
    examples = Examples(x, x, trained.card.mean, trained.card.std)
    found: list[tuple[str, float]] = []
    with one_thread(), _known_symbols(trained.card):
        for output, _ in predict(trained.model, trained.model.vector.clone(), examples):
            probabilities, classes = output.softmax(1).max(1)
            if bool(probabilities.isnan().any()):
                raise FedSeqError(
                    f"the outputs of the model in {where} are not numbers (NaN) for some of these inputs: its training "
                    "diverged, or they hold values it was not trained on."
                )
            found += zip((names[c] for c in classes.tolist()), probabilities.tolist(), strict=True)
    return [Prediction(name, *pair) for name, pair in zip(inputs.names, found, strict=True)]


# --- new inputs: pictures, folders of them and arrays, in the shape and type that the model takes ---

ARRAYS = (".npy", ".npz")
MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # of pictures, by their channels


@dataclass
class Inputs:
    x: np.ndarray  # [n, ...]
    names: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what was done to them that the user may not expect


def read_inputs(paths: Iterable[Path], card: ModelCard) -> Inputs:
    """All inputs in these files and folders, in their order."""
    parts = [_read_array_file(path, card) if path.suffix in ARRAYS else _read_pictures(path, card) for path in paths]
    return Inputs(
        np.concatenate([part.x for part in parts]),
        [name for part in parts for name in part.names],
        [note for part in parts for note in part.notes],
    )


def _read_pictures(path: Path, card: ModelCard) -> Inputs:
    """A picture, or all that are in a folder and in folders inside it. Those of another size are resized."""
    if not path.is_file() and not path.is_dir():
        raise FedSeqError(f"{path} is not a plain file." if path.exists() else f"there is no file or folder {path}.")
    if len(card.shape) != 3 or card.dtype != "uint8" or card.shape[0] not in MODES:
        raise FedSeqError(
            f"the model takes {card.dtype} inputs of shape {list(card.shape)}, not pictures. "
            "Give them as .npy or .npz, made as they were for training."
        )
    channels, height, width = card.shape
    files = pictures_below(path) if path.is_dir() else [path]
    decoded = [decode_resized(file, (width, height), MODES[channels]) for file in files]
    resized = [(file, size) for file, (_, size) in zip(files, decoded, strict=True) if size != (width, height)]
    notes = []
    if resized:
        first, size = resized[0]
        notes = [
            f"resized to {width}x{height}, which the model takes: {len(resized)} of {len(files)} in {path} "
            f"({first.name} has {size[0]}x{size[1]})"
        ]
    return Inputs(np.stack([pixels for pixels, _ in decoded]), [str(file) for file in files], notes)


def _read_array_file(file: Path, card: ModelCard) -> Inputs:
    if not file.is_file():
        raise FedSeqError(f"there is no file {file}.")
    stored = read_array(file)
    x = arranged(stored, card.shape)
    if x is None or not len(x):
        wanted = ", ".join(map(str, card.shape))
        raise FedSeqError(f"{file} holds inputs of shape {list(stored.shape)}; the model takes [n, {wanted}].")
    names = [f"{file}[{number}]" for number in range(len(x))] if len(x) > 1 else [str(file)]
    notes = []
    if card.dtype == "uint8" and x.max() <= 1:
        notes = [f"all values in {file} are 0 or 1, where pixels go from 0 to 255"]
    return Inputs(np.ascontiguousarray(_in_range(file, x, card)), names, notes)


def arranged(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """[n, *shape] from one input or many; pictures may have their channels last, grey ones may have no channel."""
    for batch in (x, x[None]):
        if batch.shape[1:] == shape:
            return batch
        if len(shape) == 3 and batch.ndim == 4 and batch.shape[1:] == (*shape[1:], shape[0]):
            return np.moveaxis(batch, -1, 1)
        if len(shape) == 3 and shape[0] == 1 and batch.shape[1:] == shape[1:]:
            return batch[:, None]
    return None


def _in_range(file: Path, x: np.ndarray, card: ModelCard) -> np.ndarray:
    """The values in the type that the model was trained on, unless they can hardly mean the same."""
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise FedSeqError(f"{file} holds values that are not finite (NaN or infinite).")
    if card.dtype == "uint8":
        whole = x.dtype.kind in "ui" or (x.max() > 1 and bool((x == np.round(x)).all()))
        if not whole or x.min() < 0 or x.max() > 255:
            raise FedSeqError(
                f"{file} holds {x.dtype} values from {x.min():g} to {x.max():g}; the model takes pixels, "
                "whole numbers from 0 to 255. If yours were scaled, scale them back."
            )
    elif card.dtype == "float32" and x.dtype == np.uint8:
        raise FedSeqError(
            f"{file} holds uint8 values; the model was trained on float32 inputs, which are used as they are. "
            "Make yours as those were made."
        )
    elif card.dtype == "int64" and x.dtype.kind == "f":
        raise FedSeqError(f"{file} holds {x.dtype} values; the model was trained on whole numbers.")
    return x.astype(card.dtype)
