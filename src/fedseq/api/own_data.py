"""Examples that Python holds, in the forms that users have them, and whose they are.

Examples are an (x, y) pair, a torch Dataset or a Hugging Face one. All become two tensors. A data set is read once,
example by example, with whatever transform it has: training does not go through a DataLoader, of which the data set is
taken, so a random transform is drawn once and not for each epoch.

Clients are a list of such examples, or index arrays into one set, or told by a column, a function or a list.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from fedseq.basics import seeds
from fedseq.basics.errors import FedSeqError, in_short, unknown
from fedseq.data.columns import NamedColumns, column_values, to_dataset
from fedseq.data.dataset import Column, Wanted
from fedseq.data.dataset import Dataset as Table
from fedseq.data.real_clients import CLIENTS, EXAMPLES, client_indices, settle
from fedseq.training.weights import all_finite

LABEL_COLUMNS = ("label", "labels", "fine_label", "target", "y")
PICTURE_COLUMNS = ("image", "img")
WHERE, CLIENT = "data", "client"
HOLDOUT = 0.2  # where clients are told by a column and no test set is given


class Rows(Protocol):
    """A data set with a length, whose items are (input, target), or rows of columns as in Hugging Face's."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


Pair = tuple[Tensor, Tensor]
LabelledData = Pair | Dataset[Any] | DataLoader[Any] | Rows
Clients = Sequence[LabelledData] | Sequence[Sequence[int] | np.ndarray | Tensor] | str | Callable[[int], Any]


class OwnData(NamedTuple):
    train: Pair
    clients: list[np.ndarray]  # indices into the training set
    test: Pair
    names: tuple[str, ...] = ()  # of clients, where they have any
    tested: Any = None  # whose each test example is


def read_own_data(
    clients: Clients, test: LabelledData | None, data: LabelledData | None, label: str | None,
    holdout: float | None, holdout_by: str, seed: int,
) -> OwnData:  # fmt: skip
    """Everything that the user gave, checked: what cannot be used is told here, before anything is begun."""
    by_owner = isinstance(clients, str) or callable(clients) or (data is not None and _are_scalars(clients))
    if by_owner and data is None:
        raise FedSeqError("clients tells whose each example is, and there are no examples: give them as data=...")
    if holdout is not None and test is not None:
        raise FedSeqError("a test set is given, so that holdout has no effect. Leave one of them out.")
    if holdout is not None and not 0 < holdout < 1:
        raise FedSeqError(f"holdout must be a share between 0 and 1, not {holdout:g}.")
    if not by_owner and (holdout is not None or holdout_by != EXAMPLES or label is not None):
        raise FedSeqError(
            "holdout, holdout_by and label_column are for clients by a column, a function or a list. Leave them out."
        )
    if by_owner:
        return _by_owner(clients, test, data, label, HOLDOUT if holdout is None else holdout, holdout_by, seed)
    if test is None:
        raise FedSeqError(
            "give a test set, such as test=(x, y). Only where clients are told by a column, a function or a list of "
            "them is a part of the examples held out."
        )
    if data is not None:
        train = as_pair(data, "the training set")
        return OwnData(train, _indices(clients, len(train[1])), _alike([train, as_pair(test, "the test set")])[1])
    if clients is None or isinstance(clients, Mapping | Set | Tensor | np.ndarray) or not isinstance(clients, Iterable):
        raise FedSeqError(
            f"clients is of type {type(clients).__name__}: give a list with an (x, y) pair or a data set for each; or "
            "data=... with all examples, and index arrays, or a column that tells whose they are, as clients."
        )
    pairs = [as_pair(client, f"client {number}") for number, client in enumerate(clients)]
    if not pairs:
        raise FedSeqError("there are no clients. Give a list with an (x, y) pair for each.")
    *pairs, held_out = _alike([*pairs, as_pair(test, "the test set")])
    x, y = (torch.cat([pair[i] for pair in pairs]) for i in (0, 1))
    ends = np.cumsum([len(targets) for _, targets in pairs])
    return OwnData((x, y), np.split(np.arange(len(y)), ends[:-1]), held_out)


def _are_scalars(clients: Any) -> bool:
    if isinstance(clients, Tensor | np.ndarray):
        return clients.ndim == 1 and clients.dtype != object
    return isinstance(clients, Sequence) and bool(clients) and all(map(_is_scalar, clients))


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | bytes) or getattr(value, "shape", None) == () or not isinstance(value, Iterable)


def _by_owner(
    clients: Any, test: LabelledData | None, data: Any, label: str | None, holdout: float, holdout_by: str, seed: int
) -> OwnData:
    read = _from_columns if hasattr(data, "column_names") else _from_pairs
    stored, by = read(data, clients, label, holdout_by, test), clients if isinstance(clients, str) else CLIENT
    rng = seeds.generator(seed, "holdout")
    dataset = settle(stored, by, holdout if not len(stored.y_test) else None, holdout_by, rng)
    owners = dataset.owners
    assert owners is not None
    with warnings.catch_warnings():  # arrays that are mapped read-only, and nobody writes to them
        warnings.filterwarnings("ignore", message="The given NumPy array is not writ")
        x, y, x_test, y_test = (
            torch.from_numpy(np.ascontiguousarray(part))
            for part in (
                dataset.scaled(dataset.x_train),
                dataset.y_train,
                dataset.scaled(dataset.x_test),
                dataset.y_test,
            )
        )
    tested = owners.test if len(owners.test) else None
    return OwnData((x, y), client_indices(owners), (x_test, y_test), owners.names, tested)


def _from_columns(data: Any, by: Any, label: str | None, holdout_by: str, test: Any) -> Table:
    if not isinstance(by, str):
        raise FedSeqError("the data has columns: name the one that tells whose each example is, as clients='hospital'.")
    label = label or "label"
    asked = tuple(dict.fromkeys([by, *([] if holdout_by in (CLIENTS, EXAMPLES) else [holdout_by])]))
    splits = [data] if test is None else [data, test]
    columns = []
    for split in splits:
        if not hasattr(split, "column_names"):
            raise FedSeqError("the data has columns: give a test set with the same columns, or none.")
        columns.append({name: np.asarray(values) for name, values in split.with_format("numpy")[:].items()})
    for name in (label, *asked):
        if name not in columns[0]:
            raise unknown("column", name, columns[0])
    arrays = [name for name, values in columns[0].items() if values.ndim > 1]
    train, held_out = columns[0], columns[1] if len(columns) > 1 else None
    if not arrays:
        return to_dataset(WHERE, NamedColumns(WHERE, train, held_out, label=label), Wanted(asked, label))
    for part in columns:
        x = part[arrays[0]]
        part[arrays[0]] = x.astype(np.float32) / (255 if x.dtype == np.uint8 else 1)
    return to_dataset(WHERE, NamedColumns(WHERE, train, held_out, arrays[0], label), Wanted(asked, label))


def _from_pairs(data: Any, by: Any, label: str | None, holdout_by: str, test: Any) -> Table:
    if isinstance(by, str):
        raise FedSeqError("the data has no columns: give clients as a function of an example's number, or a list.")
    if holdout_by not in (CLIENTS, EXAMPLES):
        raise FedSeqError(f"holdout_by must be {CLIENTS} or {EXAMPLES}, not '{holdout_by}': the data has no columns.")
    pairs = [as_pair(data, "the data set")]
    if test is not None:
        pairs = _alike([*pairs, as_pair(test, "the test set")])
    if any(y.is_floating_point() for _, y in pairs):
        raise FedSeqError(
            "the data set's targets are numbers; clients by a function or a list are for classes (integers)."
        )
    count = len(pairs[0][1])
    try:
        who = [plain_number(by(number)) for number in range(count)] if callable(by) else list(map(plain_number, by))
    except Exception as error:  # whatever a user's code may raise
        raise FedSeqError(f"clients is a function of an example's number, and raises {in_short(error)}") from error
    if len(who) != count:
        raise FedSeqError(f"clients has {len(who)} entries for {count} examples.")
    whose = column_values(WHERE, CLIENT, np.asarray(who))
    classes, y = np.unique(np.concatenate([y.numpy() for _, y in pairs]), return_inverse=True)
    parts = np.split(y.astype(np.int64), [count])
    x = pairs[0][0].float().numpy()
    x_test = pairs[1][0].float().numpy() if test is not None else x[:0]
    names = tuple(map(str, classes.tolist()))
    return Table(WHERE, x, parts[0], x_test, parts[1], names, (), (), {CLIENT: Column(whose, whose[:0])})


def _indices(clients: Any, examples: int) -> list[np.ndarray]:
    """Index arrays, one for each client, into the training set; clients may share examples."""
    if not isinstance(clients, Sequence | np.ndarray | Tensor) or getattr(clients, "shape", None) == ():
        raise FedSeqError(
            f"clients is of type {type(clients).__name__}: give a list with an index array for each client."
        )
    found = []
    for number, client in enumerate(clients):
        if isinstance(client, Set | Mapping | str) or not isinstance(client, Iterable):
            kind = type(client).__name__
            raise FedSeqError(
                f"client {number} is of type {kind}: give the numbers of its examples, as a list or an array."
            )
        try:
            indices = np.asarray(client.cpu() if isinstance(client, Tensor) else client)
        except (TypeError, ValueError):
            indices = np.array(None)
        if not indices.size and indices.ndim == 1:
            indices = np.zeros(0, dtype=np.int64)
        if indices.ndim != 1 or indices.dtype.kind not in "iu":
            shape = f" of shape {list(indices.shape)}" if indices.ndim != 1 else ""
            hint = " Of a mask, give np.flatnonzero(mask)." if indices.dtype == bool else ""
            raise FedSeqError(
                f"client {number} holds {indices.dtype} values{shape}; give the numbers of its examples, as a list of "
                f"integers.{hint}"
            )
        if len(indices) and not 0 <= indices.min() <= indices.max() < examples:
            raise FedSeqError(f"client {number} names an example that is not there: they are 0 to {examples - 1}.")
        found.append(indices.astype(np.int64))
    if not any(map(len, found)):
        raise FedSeqError("no client holds an example. Give some of them indices into the training set.")
    return found


def as_pair(data: Any, who: str) -> Pair:
    """Inputs [n, ...] and targets: classes [n], or numbers of any shape; `who` is named where that cannot be."""
    x, y = _read_pair(data, who)
    for what, values in (("inputs", x), ("targets", y)):
        if (
            values.dim() == 0
            or values.is_complex()
            or values.layout != torch.strided
            or values.is_meta
            or values.is_quantized
        ):
            kind = "a single number" if values.dim() == 0 else f"{values.dtype}, {values.layout}"
            raise FedSeqError(f"{what} of {who} are {kind}; give a plain tensor or array with a row for each example.")
        if values.requires_grad:
            raise FedSeqError(f"{what} of {who} require gradients, which training would not use. Give them detached.")
        if not all_finite(values):
            raise FedSeqError(f"{what} of {who} are not all finite numbers. Fill in what is missing, or leave it out.")
    if len(x) != len(y):
        raise FedSeqError(f"{who} has {len(x)} inputs and {len(y)} targets.")
    if not len(y):
        raise FedSeqError(f"{who} has no examples. {'Leave it out.' if who.startswith('client') else 'Give some.'}")
    if y.dtype == torch.bool:
        raise FedSeqError(
            f"targets of {who} are truth values. Give classes 0 and 1, as y.long(), or numbers, as y.float()."
        )
    if y.is_floating_point():
        return x, y
    if y.dim() > 1:
        raise FedSeqError(
            f"targets of {who} are integers of shape {list(y.shape)}, and an example has one class: give [{len(y)}], "
            "such as y.flatten() of a column or y.argmax(1) of one-hot rows. Numbers are given as floats."
        )
    y = y.long()
    if int(y.min()) < 0:
        raise FedSeqError(f"class {int(y.min())} of {who} is negative. Classes are numbered from 0.")
    return x, y


def _read_pair(data: Any, who: str) -> Pair:
    if isinstance(data, DataLoader):
        data = data.dataset  # its batches are not ours
    if isinstance(data, tuple | list):
        if len(data) != 2:
            raise FedSeqError(f"{who} has {len(data)} parts; an (x, y) pair or a Dataset was expected.")
        return _tensor(data[0], f"the inputs of {who}"), _tensor(data[1], f"the targets of {who}")
    if isinstance(data, Mapping | Set | str | Tensor | np.ndarray) or not hasattr(data, "__getitem__"):
        raise FedSeqError(f"{who} is of type {type(data).__name__}; an (x, y) pair or a Dataset was expected.")
    try:
        count = len(data)
    except TypeError:
        raise FedSeqError(
            f"{who} is of type {type(data).__name__}, without a length; an (x, y) pair or a Dataset was expected."
        ) from None
    if not count:
        raise FedSeqError(f"{who} is an empty {type(data).__name__}, which does not tell its shape. Leave it out.")
    read = _row_reader(data, who) if hasattr(data, "column_names") else _checked_item
    examples = [read(data[i], who) for i in range(count)]
    return _stacked([x for x, _ in examples], who), _stacked([y for _, y in examples], who)


def _checked_item(item: Any, who: str) -> Pair:
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise FedSeqError(f"an example of {who} is of type {type(item).__name__}; a pair (input, target) was expected.")
    return _tensor(item[0], who), _tensor(item[1], who)


def _row_reader(data: Any, who: str) -> Callable[[dict[str, Any], str], Pair]:
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

    def read(row: dict[str, Any], who: str) -> Pair:
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
            "convert it, such as in the data set's transform or by df.to_numpy()."
        ) from None


def _stacked(values: Sequence[Tensor], who: str) -> Tensor:
    other = next((value.shape for value in values if value.shape != values[0].shape), None)
    if other is not None:
        raise FedSeqError(
            f"{who} has values of shape {list(values[0].shape)} and {list(other)}. Bring them to one shape, such as in "
            "the data set's transform."
        )
    return torch.stack(list(values))


def _alike(pairs: list[Pair]) -> list[Pair]:
    """Clients' sets and the test set, which are of one kind and shape."""
    (first_x, first_y), last = pairs[0], len(pairs) - 1
    for number, (x, y) in enumerate(pairs):
        who = "the test set" if number == last else f"client {number}"
        for what, own, first in (("inputs", x, first_x), ("targets", y, first_y)):
            if own.shape[1:] != first.shape[1:]:
                shapes = f"{list(own.shape[1:])}, and those of client 0 {list(first.shape[1:])}"
                raise FedSeqError(f"{what} of {who} have the shape {shapes}. Give all of one shape.")
            if own.is_floating_point() != first.is_floating_point():
                kinds = (
                    "classes (integers) and some are numbers (floats)"
                    if what == "targets"
                    else "integers and some floats"
                )
                raise FedSeqError(f"some {what} are {kinds}. Give all of one kind.")
    return pairs


def plain_number(value: Any) -> Any:
    """A number of NumPy's or PyTorch's types as one of Python's."""
    return value.item() if hasattr(value, "item") and np.ndim(value) == 0 else value
