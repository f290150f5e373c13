"""An algorithm is a record of small pure functions; a round is the same for all of them.

FedAvg is the neutral record: whoever changes nothing is FedAvg. FedProx, SCAFFOLD and FedDyn replace what a client
adds to its gradient; server rules replace how models are merged; FedSeq and FedSeqInter change what a unit is and how
often models are merged. So `fedseq(feddyn(0.1))` needs no code of its own.

State is a flat dict of tensors, which is what a checkpoint holds. "weights" is the server's model.
"""

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from fedseq.basics.errors import FedSeqError
from fedseq.basics.identity import plain

State = dict[str, Tensor]
UploadAndMemory = tuple[Mapping[str, Tensor], dict[str, Tensor]]


@dataclass
class Hop:
    """What a client knows while it trains. Vectors hold the model's parameters (not BatchNorm's buffers)."""

    start: Tensor  # the model it was given: the server's, or its predecessor's in a chain; not to be changed
    weights: Tensor  # its model now
    message: Mapping[str, Tensor]  # what the server sent beside the model
    memory: Mapping[str, Tensor]  # what it kept from its last visit; empty at the first
    lr: float
    gradient_at_start: Callable[[], Tensor]  # mean gradient over all its examples at `start`; costs a pass
    velocity: Tensor | None = None  # of momentum SGD
    steps: int = 0


class UnitResult(Protocol):
    """What came of a unit, as far as an algorithm needs to know."""

    @property
    def index(self) -> int: ...  # of its slot
    @property
    def start(self) -> Tensor: ...
    @property
    def end(self) -> Tensor: ...
    @property
    def examples(self) -> int: ...  # held by the clients that were trained
    @property
    def uploads(self) -> Mapping[str, Tensor]: ...  # summed over the unit's clients


@dataclass(frozen=True)
class Setting:
    """What the server knows of the federation."""

    num_clients: int
    num_units: int  # clients, or superclients
    units_per_round: int
    num_parameters: int  # of the model; what follows in a weight vector are buffers


def nothing(*_: Any) -> dict[str, Tensor]:
    return {}


def keep(state: State, results: Sequence[UnitResult], setting: Setting) -> State:
    return state


def keep_no_memory(hop: Hop) -> UploadAndMemory:
    return {}, {}


def weighted_mean(models: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """sum_i w_i / sum(w) * model_i, folded in the order given."""
    total = float(sum(weights))
    mean = models[0] * (weights[0] / total)
    for model, weight in zip(models[1:], weights[1:], strict=True):
        mean.add_(model, alpha=weight / total)
    return mean


def with_mean_buffers(weights: Tensor, models: Sequence[Tensor], examples: Sequence[float], setting: Setting) -> Tensor:
    """The weights with buffers that are the models' mean weighted by examples, whatever was done to the parameters."""
    buffers = weighted_mean([model[setting.num_parameters :] for model in models], examples)
    return torch.cat([weights[: setting.num_parameters], buffers])


def merge_weighted(state: State, models: Sequence[Tensor], examples: Sequence[float], setting: Setting) -> State:
    """theta <- sum n_k/n theta_k"""
    return {**state, "weights": weighted_mean(models, examples)}


def server_model(state: State) -> dict[str, Tensor]:
    return {"": state["weights"]}


def server_weights(state: State) -> Tensor:
    return state["weights"]


@dataclass(frozen=True)
class Algorithm:
    """The differences to FedAvg. Functions are module-level (or partials of such), so that workers can be sent them."""

    name: str = "fedavg"
    # On a client. `correct` changes the batch gradient in place; None where there is nothing to add.
    correct: Callable[[Tensor, Hop], None] | None = None
    # After the client's last step: what it uploads beside its model (summed over a chain), and what it remembers.
    finish: Callable[[Hop], UploadAndMemory] = keep_no_memory
    # Uploads that are not summed but take the place of the message of their name for the chain's next client.
    handed_on: tuple[str, ...] = ()
    # On the server. `init` gives what the state holds beside "weights"; `message` what each client is sent.
    init: Callable[[Tensor, Setting], State] = nothing
    message: Callable[[State], dict[str, Tensor]] = nothing
    # The model that units start from, where it is another than the server's.
    sent: Callable[[State], Tensor] = server_weights
    # After each round: what its results teach the server. Then models become one, weighted by their examples.
    observe: Callable[[State, Sequence[UnitResult], Setting], State] = keep
    merge: Callable[[State, Sequence[Tensor], Sequence[float], Setting], State] = merge_weighted
    # Models that `merge` needs to keep its promise: with fewer, a run warns, and is the same run.
    least_models: int = field(default=1, compare=False)
    # Models to evaluate: "" is the server's, "client_mean" is reported as accuracy_client_mean.
    evaluated: Callable[[State], dict[str, Tensor]] = server_model
    # What a visit takes beside its epochs, on the simulated clock: `gradient_at_start` is a pass over the data.
    extra_passes: int = 0
    # The shape of a round.
    superclients: bool = False  # units are superclients instead of clients
    merge_every: int | None = 1  # rounds between merges; None: as many as there are units


FEDAVG = Algorithm()  # McMahan et al. 2017


def with_server_rule(inner: Algorithm, rule: str, **parts: Any) -> Algorithm:
    """The inner algorithm with these parts, by which a server rule takes the place of the mean."""
    if inner.merge is not merge_weighted:
        raise FedSeqError(
            f"{inner.name} has a server rule of its own and cannot be combined with {rule}. Leave one of them out."
        )
    return replace(inner, name=compose(inner.name, rule), **parts)


def compose(*names: str) -> str:
    return "+".join(name for name in names if name != FEDAVG.name)


def signature(algorithm: Algorithm) -> dict[str, Any]:
    """The record as plain data, by which a continued run recognises its algorithm and hyper-parameters."""
    return {part.name: plain(getattr(algorithm, part.name)) for part in fields(algorithm) if part.compare}


_TAKES = {  # what an algorithm's functions are called with
    "correct": "gradient, hop", "finish": "hop", "init": "weights, setting", "message": "state", "sent": "state",
    "observe": "state, results, setting", "merge": "state, models, examples, setting", "evaluated": "state",
}  # fmt: skip


def checked(algorithm: Algorithm) -> Algorithm:
    """A record of a user's own, whose mistakes are told before anything begins."""
    for part, takes in _TAKES.items():
        function = getattr(algorithm, part)
        if part == "correct" and function is None:
            continue
        if not callable(function):
            raise _misfit(algorithm, part, f"is of type {type(function).__name__}: give a function of ({takes})")
        with contextlib.suppress(ValueError):  # of C functions nothing is known
            signature = inspect.signature(function)
            try:
                signature.bind(*takes.split(", "))
            except TypeError:
                raise _misfit(algorithm, part, f"takes {signature}, and is called with ({takes})") from None
    every, passes, handed_on = algorithm.merge_every, algorithm.extra_passes, algorithm.handed_on
    if every is not None and (not isinstance(every, int) or every is True or every < 1):
        raise _misfit(algorithm, "merge_every", f"is {every!r}: give a whole number of rounds from 1, or None")
    if not isinstance(passes, int) or passes < 0:
        raise _misfit(algorithm, "extra_passes", f"is {passes!r}: give a whole number from 0")
    if not isinstance(algorithm.superclients, bool):
        raise _misfit(algorithm, "superclients", f"is {algorithm.superclients!r}: give True or False")
    if not isinstance(handed_on, tuple) or not all(isinstance(name, str) for name in handed_on):
        raise _misfit(algorithm, "handed_on", f"is {handed_on!r}: give a tuple of names, such as ('control',)")
    return algorithm


def _misfit(algorithm: Algorithm, part: str, what: str) -> FedSeqError:
    return FedSeqError(f"{part} of algorithm '{algorithm.name}' {what}.")


def tensors_of(algorithm: Algorithm, part: str, *arguments: Any) -> dict[str, Tensor]:
    """What the function gives: tensors by name."""
    found = getattr(algorithm, part)(*arguments)
    if not isinstance(found, Mapping):
        raise _misfit(algorithm, part, f"returns {type(found).__name__}. It returns a dict of tensors")
    for name, value in found.items():
        if not isinstance(value, Tensor) or not isinstance(name, str):
            raise _misfit(algorithm, part, f"returns {name!r} that is no tensor. It returns a dict of tensors by name")
    return dict(found)


def _next_state(algorithm: Algorithm, part: str, state: State, *arguments: Any) -> State:
    found = tensors_of(algorithm, part, state, *arguments)
    if lost := [name for name in state if name not in found]:
        raise _misfit(algorithm, part, f"returns a state without {lost[0]!r}. Return {{**state, 'weights': ...}}")
    _check_model(algorithm, part, found["weights"], state["weights"])
    return found


def _check_model(algorithm: Algorithm, part: str, found: Any, weights: Tensor) -> Tensor:
    if isinstance(found, Tensor) and (found.shape, found.dtype) == (weights.shape, weights.dtype):
        return found
    kind = f"{found.dtype} {list(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
    wanted = f"{weights.dtype} {list(weights.shape)}"
    raise _misfit(algorithm, part, f"gives a model of {kind}; a vector like state['weights'] is needed: {wanted}")


def initial_state(algorithm: Algorithm, weights: Tensor, setting: Setting) -> State:
    state = {"weights": weights, **tensors_of(algorithm, "init", weights, setting)}
    _check_model(algorithm, "init", state["weights"], weights)
    return _refill_slots(algorithm, state, setting) if period(algorithm, setting) > 1 else state


def period(algorithm: Algorithm, setting: Setting) -> int:
    return algorithm.merge_every or setting.num_units


def starts(algorithm: Algorithm, state: State, units: int) -> list[Tensor]:
    """The model each of the round's units starts from: its slot's, where there are slots, else what is sent."""
    sent = _sent(algorithm, state)
    return [state.get(f"slot/{i}", sent) for i in range(units)]


def _sent(algorithm: Algorithm, state: State) -> Tensor:
    return _check_model(algorithm, "sent", algorithm.sent(state), state["weights"])


def aggregate(algorithm: Algorithm, state: State, results: Sequence[UnitResult], setting: Setting, round: int) -> State:
    """The state after a round; results come in the order of their jobs. Units that trained nobody do not count."""
    results = [result for result in results if result.examples]
    state = _next_state(algorithm, "observe", state, results, setting)
    every = period(algorithm, setting)
    if every == 1:
        if not results:
            return state
        models = [result.end for result in results]
        return _next_state(algorithm, "merge", state, models, [result.examples for result in results], setting)
    examples = state["slot_examples"].clone()
    for result in results:
        examples[result.index] += result.examples
    slots = {f"slot/{result.index}": result.end for result in results}
    state = {**state, **slots, "slot_examples": examples}
    if round % every:
        return state
    return _refill_slots(algorithm, _merge_slots(algorithm, state, setting), setting)


def models_to_evaluate(algorithm: Algorithm, state: State, setting: Setting) -> dict[str, Tensor]:
    """Between merges the weighted mean of the slots is evaluated, and not broadcast."""
    models = tensors_of(algorithm, "evaluated", _merge_slots(algorithm, state, setting))
    if "" not in models:
        raise _misfit(algorithm, "evaluated", "returns no model by the name '', which is the server's")
    for model in models.values():
        _check_model(algorithm, "evaluated", model, state["weights"])
    return models


def _merge_slots(algorithm: Algorithm, state: State, setting: Setting) -> State:
    examples = state.get("slot_examples")
    if examples is None or not examples.any():
        return state
    used = [i for i, n in enumerate(examples.tolist()) if n]
    models, counts = [state[f"slot/{i}"] for i in used], [float(examples[i]) for i in used]
    return _next_state(algorithm, "merge", state, models, counts, setting)


def _refill_slots(algorithm: Algorithm, state: State, setting: Setting) -> State:
    sent = _sent(algorithm, state)
    slots = {f"slot/{i}": sent for i in range(setting.units_per_round)}
    return {**state, **slots, "slot_examples": torch.zeros(setting.units_per_round, dtype=torch.int64)}
