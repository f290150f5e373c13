"""Examples in the forms that users have them: an (x, y) pair, a torch Dataset, a Hugging Face dataset.

All become two tensors. A data set is read once, example by example, with whatever transform it has: training does not
go through a DataLoader, of which the data set is taken, so a random transform is drawn once and not for each epoch.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from fedseq.basics.errors import FedSeqError
from fedseq.training.weights import all_finite

LABEL_COLUMNS = ("label", "labels", "fine_label", "target", "y")
PICTURE_COLUMNS = ("image", "img")


class Rows(Protocol):
    """A data set with a length, whose items are (input, target), or rows of columns as in Hugging Face's."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


LabelledData = tuple[Tensor, Tensor] | Dataset[Any] | DataLoader[Any] | Rows


def as_pair(data: LabelledData, who: str) -> tuple[Tensor, Tensor]:
    """Inputs [n, ...] and targets: classes [n], or numbers of any shape; `who` is named where that cannot be."""
    x, y = _read_pair(data, who)
    if y.dim() > 1 and not y.is_floating_point():
        raise FedSeqError(
            f"targets of {who} are integers of shape {list(y.shape)}, and an example has one class: give [{len(y)}], "
            "such as y.flatten() of a column or y.argmax(1) of one-hot rows. Numbers are given as floats."
        )
    for what, values in (("inputs", x), ("targets", y)):
        if not all_finite(values):
            raise FedSeqError(f"{what} of {who} are not all finite numbers. Fill in what is missing, or leave it out.")
    return x, y


def _read_pair(data: LabelledData, who: str) -> tuple[Tensor, Tensor]:
    if isinstance(data, DataLoader):
        data = data.dataset  # its batches are not ours
    if isinstance(data, tuple | list):
        if len(data) != 2:
            raise FedSeqError(f"{who} has {len(data)} parts; an (x, y) pair or a Dataset was expected.")
        return torch.as_tensor(data[0]), torch.as_tensor(data[1])
    try:
        count = len(data)  # type: ignore[arg-type]  # a torch Dataset need not have one
    except TypeError:
        raise FedSeqError(
            f"{who} is of type {type(data).__name__}, without a length; an (x, y) pair or a Dataset was expected."
        ) from None
    if not count:
        raise FedSeqError(f"{who} is an empty {type(data).__name__}, which does not tell its shape. Leave it out.")
    read = _row_reader(data, who) if hasattr(data, "column_names") else _checked_item
    examples = [read(data[i], who) for i in range(count)]
    return _stacked([x for x, _ in examples], who), _stacked([y for _, y in examples], who)


def _checked_item(item: Any, who: str) -> tuple[Tensor, Tensor]:
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise FedSeqError(f"an example of {who} is of type {type(item).__name__}; a pair (input, target) was expected.")
    return _tensor(item[0], who), _tensor(item[1], who)


def _row_reader(data: Any, who: str) -> Callable[[dict[str, Any], str], tuple[Tensor, Tensor]]:
    """Which columns of a Hugging Face dataset are the target and the input: a picture, or all others as numbers."""
    columns = list(data.column_names)
    label = next((name for name in LABEL_COLUMNS if name in columns), None)
    if label is None:
        raise FedSeqError(
            f"{who} has the columns {', '.join(columns)}, of which none is named {' or '.join(LABEL_COLUMNS)}. "
            "Rename the one with the targets: dataset.rename_column(NAME, 'label')."
        )
    inputs = [name for name in columns if name in PICTURE_COLUMNS][:1] or [name for name in columns if name != label]
    if not inputs:
        raise FedSeqError(f"{who} has no column beside {label}.")

    def read(row: dict[str, Any], who: str) -> tuple[Tensor, Tensor]:
        found = [_tensor(row[name], f"column {name} of {who}") for name in inputs]
        return found[0] if len(found) == 1 else _stacked(found, who), _tensor(row[label], f"column {label} of {who}")

    return read


def _tensor(value: Any, who: str) -> Tensor:
    """A picture becomes float32 [channels, height, width] from 0 to 1, as torchvision's ToTensor makes it."""
    if hasattr(value, "getbands"):  # a PIL image
        pixels = torch.from_numpy(np.array(value if value.mode in ("L", "RGB") else value.convert("RGB")))
        pixels = pixels[None] if pixels.dim() == 2 else pixels.permute(2, 0, 1)
        return pixels.float() / 255
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError):
        raise FedSeqError(
            f"{who} holds {type(value).__name__}, which is no number, array or picture. Choose other columns, or "
            "convert it in the data set's transform."
        ) from None


def _stacked(values: Sequence[Tensor], who: str) -> Tensor:
    other = next((value.shape for value in values if value.shape != values[0].shape), None)
    if other is not None:
        raise FedSeqError(
            f"{who} has values of shape {list(values[0].shape)} and {list(other)}. Bring them to one shape, such as in "
            "the data set's transform."
        )
    return torch.stack(list(values))
