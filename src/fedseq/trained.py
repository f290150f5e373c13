"""Using a trained model: evaluate a run, classify new inputs, load it into other code."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from fedseq import weights
from fedseq.config import resolve
from fedseq.configfile import from_mapping
from fedseq.data import Dataset
from fedseq.errors import FedSeqError
from fedseq.evaluation import Evaluation, evaluate, predict
from fedseq.examples import Examples
from fedseq.jobs import Task
from fedseq.parts import parts_from, read_dataset
from fedseq.progress import QUIET, Reporter
from fedseq.results import read_run
from fedseq.training import build, one_thread
from fedseq.weights import FlatModel


@dataclass(frozen=True)
class Trained:
    model: FlatModel
    task: Task
    dataset: Dataset


def load_trained(folder: str | Path, reporter: Reporter = QUIET, **changes: Any) -> Trained:
    run = read_run(Path(folder))
    if run.config.dataset == "own":
        raise FedSeqError(f"{folder} was made in Python with a model of its own: load its weights.safetensors there.")
    if not run.has_weights:
        raise FedSeqError(f"{folder} has no weights.safetensors yet. Finish it with: fedseq resume {folder}")
    elsewhere = replace(run.config, engine=None, ray_address=None)  # where it was trained does not matter here
    config = resolve(from_mapping(changes, elsewhere))
    dataset = read_dataset(config, reporter)
    task = parts_from(config, dataset).task
    model = build(task)
    weights.read(run.folder / "weights.safetensors", model)
    return Trained(model, task, dataset)


def load_model(folder: str | Path) -> nn.Module:
    """A run's trained model, ready to predict (its inputs are normalised as its data set's are)."""
    return load_trained(folder).model.module.eval()


def evaluate_run(folder: str | Path, reporter: Reporter = QUIET, **changes: Any) -> tuple[Evaluation, tuple[str, ...]]:
    """Loss and accuracy of the final model on the run's test set, and the names of the classes."""
    trained = load_trained(folder, reporter, **changes)
    with one_thread():
        return evaluate(trained.task, trained.model, trained.model.vector.clone()), trained.dataset.class_names


def predict_run(folder: str | Path, file: Path, reporter: Reporter = QUIET, **changes: Any) -> list[tuple[str, float]]:
    """The likeliest class of each input in a file, and its probability."""
    trained = load_trained(folder, reporter, **changes)
    x = torch.from_numpy(read_inputs(file, trained.dataset)).to(trained.task.device)
    examples = Examples(x, x, trained.dataset.mean, trained.dataset.std)
    found: list[tuple[str, float]] = []
    with one_thread():
        for output, _ in predict(trained.model, trained.model.vector.clone(), examples):
            probabilities, classes = output.softmax(1).max(1)
            found += zip(
                (trained.dataset.class_names[c] for c in classes.tolist()), probabilities.tolist(), strict=True
            )
    return found


def read_inputs(file: Path, dataset: Dataset) -> np.ndarray:
    """New inputs in the shape and type that the data set has: from .npy, .npz (key x) or a picture."""
    if not file.is_file():
        raise FedSeqError(f"there is no file {file}.")
    x = _read_array(file) if file.suffix in (".npy", ".npz") else _read_picture(file, dataset.shape)
    if x.shape == dataset.shape:
        x = x[None]
    if x.ndim == 1 + len(dataset.shape) and x.shape[1:] != dataset.shape and len(dataset.shape) == 3:
        x = np.moveaxis(x, -1, 1)  # pictures with channels last
    if x.ndim == 3 and dataset.shape[0] == 1 and x.shape[1:] == dataset.shape[1:]:
        x = x[:, None]  # grey pictures without a channel
    if x.shape[1:] != dataset.shape or not len(x):
        raise FedSeqError(
            f"{file} holds inputs of shape {x.shape}; the model takes [n, {', '.join(map(str, dataset.shape))}]."
        )
    if dataset.mean and x.dtype != np.uint8:
        raise FedSeqError(f"{file} holds {x.dtype} values; the model takes pictures as uint8 from 0 to 255.")
    return np.ascontiguousarray(x if dataset.mean else x.astype(np.float32))


def _read_array(file: Path) -> np.ndarray:
    try:
        loaded: Any = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise FedSeqError(f"{file} is not a readable .npy or .npz file of numbers ({type(error).__name__}).") from None
    if isinstance(loaded, Mapping):
        if "x" not in loaded:
            raise FedSeqError(f"{file} has no array named x. It has: {', '.join(loaded)}.")
        loaded = loaded["x"]
    if loaded.dtype.kind not in "uif":
        raise FedSeqError(f"{file} holds values of type {loaded.dtype}, not numbers.")
    return loaded


def _read_picture(file: Path, shape: tuple[int, ...]) -> np.ndarray:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise FedSeqError("reading pictures needs Pillow. Install it with: pip install 'fedseq[data]'") from None
    if len(shape) != 3:
        raise FedSeqError(f"this model takes inputs of shape {shape}, not pictures. Give an .npy file.")
    try:
        with Image.open(file) as image:
            return np.atleast_3d(np.asarray(image.convert("L" if shape[0] == 1 else "RGB"))).transpose(2, 0, 1)
    except (UnidentifiedImageError, OSError) as error:
        raise FedSeqError(f"{file} is not a readable picture: {error}") from None
