"""Plain nn.Modules by name; a user's own by `package.module:Class`."""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from fedseq.basics.errors import FedSeqError, in_short, unknown
from fedseq.models.networks import Shape
from fedseq.options.tables import MODELS, load_user_code

Factory = Callable[[], nn.Module]


def default_model(shape: Shape, text: bool = False) -> str:
    """The model for data whose source names none."""
    if text:
        return "gru"
    if not MODELS["small-cnn"].fits(shape):
        return "mlp"
    return "lenet5" if min(shape[1:]) >= 28 else "small-cnn"


def model_factory(name: str, shape: Shape, num_classes: int) -> Factory:
    """A function that builds the named model for inputs of this shape."""
    if ":" in name:
        return own_factory(load_user_code("model", name), f"'{name}'", shape, num_classes)
    if name not in MODELS:
        raise unknown("model", name, (*MODELS, "package.module:Class"))
    model = MODELS[name]
    if not model.fits(shape):
        raise FedSeqError(
            f"model '{name}' takes {model.wanted}, and the data has shape {shape}. Use --model {default_model(shape)}."
        )
    return partial(model.load(), shape, num_classes)


CONTRACT = "(shape, num_classes), (num_classes) or no arguments"


def own_factory(make: Callable[..., Any], name: str, shape: Shape, num_classes: int) -> Factory:
    """A function that builds a user's model, with what it asks for: parameters by these names, or one or two others."""
    known = {"shape": tuple(shape), "num_classes": num_classes}
    try:
        parameters = list(inspect.signature(make).parameters.values())
    except (TypeError, ValueError):  # of C functions nothing is known
        parameters = []
    if named := {found.name for found in parameters} & known.keys():
        return partial(_build_own, make, name, (), {key: value for key, value in known.items() if key in named})
    required = [
        found for found in parameters
        if found.default is found.empty and found.kind in (found.POSITIONAL_ONLY, found.POSITIONAL_OR_KEYWORD)
    ]  # fmt: skip
    if len(required) > 2:
        taken = ", ".join(found.name for found in required)
        raise FedSeqError(f"model {name} takes ({taken}), and is called with {CONTRACT}.")
    arguments: tuple[Any, ...] = ((), (num_classes,), (tuple(shape), num_classes))[len(required)]
    if any(found.kind is found.VAR_POSITIONAL for found in parameters):
        arguments = (tuple(shape), num_classes)
    return partial(_build_own, make, name, arguments, {})


def _build_own(
    make: Callable[..., Any], name: str, arguments: tuple[Any, ...], by_name: Mapping[str, Any]
) -> nn.Module:
    shown = ", ".join([*map(str, arguments), *(f"{key}={value}" for key, value in by_name.items())])
    try:
        module = make(*arguments, **by_name)
    except Exception as error:  # whatever a user's code may raise
        raise FedSeqError(f"model {name} cannot be built: with ({shown}) it raises {in_short(error)}") from error
    if not isinstance(module, nn.Module):
        raise FedSeqError(f"model {name}, called with ({shown}), gives {type(module).__name__}, not a torch.nn.Module.")
    if any(is_lazy(tensor) or tensor.is_meta for tensor in (*module.parameters(), *module.buffers())):
        raise FedSeqError(
            f"model {name} has layers without numbers (lazy ones, or on the device 'meta'). Give them sizes."
        )
    return module
