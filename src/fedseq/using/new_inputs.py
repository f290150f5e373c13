"""New inputs for a trained model, from pictures, folders of them and arrays, in the shape and type that it takes."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedseq.basics.errors import FedSeqError
from fedseq.data.own_files import pictures_below
from fedseq.data.pictures import decode_resized
from fedseq.data.untrusted import read_array
from fedseq.runs.model_card import ModelCard

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
