"""What it takes to use a trained model without its data: in model.json, and in the metadata of weights.safetensors."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedseq.basics.errors import FedSeqError
from fedseq.training import weights

KEY = "fedseq"  # in the metadata; a single one, as the order of several is not always the same
MOST_NUMBERS = 2**28  # of one input
DTYPES = ("uint8", "float32", "float64", "int64")


@dataclass(frozen=True)
class ModelCard:
    model: str  # a name of ours, package.module:Class, or "own" for one that was given in Python
    shape: tuple[int, ...]  # of one input
    dtype: str  # of inputs as they are stored: uint8 are pictures, float64 are rows of a table
    class_names: tuple[str, ...]  # in the order of the outputs; none where the targets are numbers
    mean: tuple[float, ...] = ()  # per channel, of pixels scaled to 0..1; none where inputs are used as they are
    std: tuple[float, ...] = ()
    centre: Any = ()  # what is taken from features, and what they are divided by, as nested lists; none for pictures
    spread: Any = ()

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def scaled(self, x: np.ndarray) -> np.ndarray:
        """Features as the model takes them; pictures stay integers until a batch is made."""
        return x if not self.spread else ((x - np.array(self.centre)) / np.array(self.spread)).astype(np.float32)

    def describe(self) -> dict[str, Any]:
        return asdict(self)

    def metadata(self) -> dict[str, str]:
        return {KEY: json.dumps(self.describe())}


def read_card(path: Path) -> ModelCard | None:
    """Of a file of weights; None where it has none, as those of other programs."""
    found = weights.metadata(path).get(KEY)
    if found is None:
        return None
    try:
        return _checked(json.loads(found))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FedSeqError(f"{path}: what it says of its model is damaged ({error}).") from None


def _checked(told: Mapping[str, Any]) -> ModelCard:
    """Whoever wrote the file may have written anything."""
    shape, names = tuple(told["shape"]), tuple(told["class_names"])
    mean, std = tuple(told["mean"]), tuple(told["std"])
    if not shape or not all(type(side) is int and side > 0 for side in shape) or math.prod(shape) > MOST_NUMBERS:
        raise ValueError(f"inputs of shape {shape}")
    if not all(isinstance(name, str) and name.isprintable() for name in names):
        raise ValueError("names of classes that are no words")
    if not all(isinstance(number, int | float) and math.isfinite(number) for number in (*mean, *std)) or 0 in std:
        raise ValueError("a scaling that is no scaling")
    if len(mean) != len(std) or (mean and len(mean) != shape[0]):
        raise ValueError(f"a scaling of {len(mean)} channels for inputs of shape {shape}")
    if not isinstance(told["model"], str) or told["dtype"] not in DTYPES:
        raise ValueError("a model or a type of input that does not exist")
    centre, spread = (np.array(told.get(name, ()), dtype=np.float64) for name in ("centre", "spread"))
    if spread.size and not (np.isfinite(centre / spread).all() and np.broadcast_shapes(centre.shape, shape) == shape):
        raise ValueError("a scaling that is no scaling")
    return ModelCard(told["model"], shape, told["dtype"], names, mean, std, centre.tolist(), spread.tolist())
