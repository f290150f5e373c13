"""What travels between server and clients, and what the server makes of an answer it has no reason to trust."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, MetricRecordValues, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_object_body
from torch import Tensor

HELLO, TRAIN = "query.hello", "train"
_MESSAGE, _UPLOAD = "message/", "upload/"
_HEADER_BYTES = 4096  # more than numpy writes before the numbers

Version = tuple[int, int]  # round and visit after which a client's memory was written


class Refused(Exception):  # noqa: N818 - a client's fault, and none of the program's
    """An answer that does not count, and why."""


@dataclass(frozen=True)
class DataFacts:
    """What the server says of the data, so that every client numbers its classes and scales its pictures alike."""

    shape: tuple[int, ...]
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    kernels: str = "torch"  # who convolves, at every client alike
    frozen: str = ""  # the digest of the parameters that are not trained: they are not sent, and must be the same


@dataclass(frozen=True)
class Order:
    """A visit to a client, or several in a row."""

    run: str  # names the run for the client's memory; survives a restart of the server, unlike Flower's run id
    client: int
    round: int
    visits: tuple[int, ...]
    purpose: str
    plain: bool  # plain SGD, as in pre-training, whatever the federation's algorithm
    lr: float
    epochs: int
    memory: Version | None  # the memory to start from
    start: Tensor
    message: Mapping[str, Tensor]
    facts: DataFacts


@dataclass(frozen=True)
class Answer:
    weights: Tensor
    upload: Mapping[str, Tensor]
    examples: int
    loss_sum: float
    remembers: bool  # whether the client wrote memory


def pack_order(order: Order) -> RecordDict:
    job: dict[str, Any] = {
        "run": order.run,
        "client": order.client,
        "round": order.round,
        "visits": list(order.visits),
        "purpose": order.purpose,
        "plain": order.plain,
        "lr": order.lr,
        "epochs": order.epochs,
        **({"memory": list(order.memory)} if order.memory else {}),
    }
    arrays = {"start": order.start, **{_MESSAGE + name: tensor for name, tensor in order.message.items()}}
    return RecordDict({"arrays": _arrays(arrays), "job": ConfigRecord(job), "data": pack_facts(order.facts)})


def unpack_order(content: RecordDict) -> Order:
    """On the client, who trusts its server: a message of another form raises what Python raises."""
    job = content.config_records["job"]
    arrays = {name: torch.from_numpy(array.numpy().copy()) for name, array in content.array_records["arrays"].items()}
    memory = job.get("memory")
    return Order(
        run=str(job["run"]),
        client=int(job["client"]),  # type: ignore[arg-type]
        round=int(job["round"]),  # type: ignore[arg-type]
        visits=tuple(job["visits"]),  # type: ignore[arg-type]
        purpose=str(job["purpose"]),
        plain=bool(job["plain"]),
        lr=float(job["lr"]),  # type: ignore[arg-type]
        epochs=int(job["epochs"]),  # type: ignore[arg-type]
        memory=(int(memory[0]), int(memory[1])) if memory else None,  # type: ignore[index]
        start=arrays.pop("start"),
        message={name.removeprefix(_MESSAGE): tensor for name, tensor in arrays.items()},
        facts=unpack_facts(content.config_records["data"]),
    )


def pack_facts(facts: DataFacts) -> ConfigRecord:
    return ConfigRecord({name: value if isinstance(value, str) else list(value) for name, value in vars(facts).items()})


def unpack_facts(record: ConfigRecord) -> DataFacts:
    facts = {name: value if isinstance(value, str) else tuple(value) for name, value in record.items()}  # type: ignore
    return DataFacts(**facts)  # type: ignore[arg-type]


def pack_answer(answer: Answer) -> RecordDict:
    arrays = {"weights": answer.weights, **{_UPLOAD + name: tensor for name, tensor in answer.upload.items()}}
    metrics: dict[str, MetricRecordValues] = {
        "num-examples": answer.examples,
        "loss-sum": answer.loss_sum,
        "remembers": int(answer.remembers),
    }
    return RecordDict({"arrays": _arrays(arrays), "metrics": MetricRecord(metrics)})


def unpack_answer(content: RecordDict, weights: Tensor, upload: Mapping[str, Tensor], examples: int) -> Answer:
    """An answer in the form of what is expected; everything else is refused before it is used."""
    arrays: Mapping[str, Array] = content.array_records.get("arrays", {})
    expected = {"weights": weights, **{_UPLOAD + name: tensor for name, tensor in upload.items()}}
    if set(arrays) != set(expected):
        missing, extra = sorted(set(expected) - set(arrays)), sorted(set(arrays) - set(expected))
        raise Refused(f"missing {missing}" if missing else f"{len(extra)} arrays nobody asked for")
    found = {name: _read(name, arrays[name], like) for name, like in expected.items()}
    metrics: Mapping[str, MetricRecordValues] = content.metric_records.get("metrics", {})
    claimed, loss_sum, remembers = (metrics.get(key) for key in ("num-examples", "loss-sum", "remembers"))
    if not isinstance(claimed, int) or claimed != examples:
        raise Refused(f"trained on {claimed!r:.20} examples, and holds {examples}")
    if not isinstance(loss_sum, float) or remembers not in (0, 1):
        raise Refused("its loss or its word on memory is missing")
    return Answer(
        weights=found.pop("weights"),
        upload={name.removeprefix(_UPLOAD): tensor for name, tensor in found.items()},
        examples=claimed,
        loss_sum=loss_sum,
        remembers=bool(remembers),
    )


_inflate = Array.inflate
_SLACK = 1 << 25  # an array comes in pieces of some megabytes


def bound_answers(largest: int) -> None:
    """Refuse arrays of more than so many bytes while they are unpacked: a small answer may name a piece many times."""

    def inflate(content: bytes, children: dict[str, Any] | None = None) -> Array:
        pieces = json.loads(get_object_body(content, Array))["arraychunk_ids"]
        longest = max((len(piece.data) for piece in (children or {}).values()), default=0)
        if len(pieces) * longest > largest + _SLACK:
            raise ValueError("an array larger than any that was asked for")
        return _inflate(content, children)

    Array.inflate = staticmethod(inflate)  # type: ignore[method-assign,assignment]


def _read(name: str, array: Array, like: Tensor) -> Tensor:
    """The array if it has the size, type and shape of `like`, none of which is taken from what it says of itself."""
    if len(array.data) > like.numel() * like.element_size() + _HEADER_BYTES:
        raise Refused(f"{name} has {len(array.data)} bytes, expected {like.numel() * like.element_size()}")
    wanted = like[:0].cpu().numpy().dtype
    file = io.BytesIO(array.data)
    try:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError("another format")
        fits = np.lib.format.read_array_header_1_0(file) == (tuple(like.shape), False, wanted)
    except Exception as error:  # numpy parses the header as Python, which fails in many ways
        raise Refused(f"{name} is no array") from error
    if not fits:
        raise Refused(f"{name} is not {wanted} {list(like.shape)}")
    numbers = array.data[file.tell() :]
    if len(numbers) != like.numel() * like.element_size():
        raise Refused(f"{name} is cut off")
    return torch.from_numpy(np.frombuffer(numbers, wanted).reshape(like.shape).copy()).to(like.device)


def _arrays(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    return ArrayRecord({name: Array(tensor.detach().cpu().numpy()) for name, tensor in tensors.items()})
