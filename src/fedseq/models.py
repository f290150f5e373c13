"""Plain nn.Modules by name; a user's own by `package.module:Class`."""

import importlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from fedseq.errors import FedSeqError, unknown
from fedseq.kernels import pool_relu

Shape = tuple[int, ...]
Factory = Callable[[], nn.Module]


class LeNet5(nn.Module):
    """The LeNet-5 of Hsu et al. 2020: 797,962 parameters for 32x32 colour pictures in 10 classes.

    Max-pooling comes before ReLU: both are monotonic, so the result is the same and there are four times fewer ReLUs.
    """

    def __init__(self, shape: Shape, num_classes: int):
        super().__init__()
        channels, height, width = shape
        self.conv1 = nn.Conv2d(channels, 64, 5)
        self.conv2 = nn.Conv2d(64, 64, 5)
        self.fc1 = nn.Linear(64 * _conv_pool_twice(height) * _conv_pool_twice(width), 384)
        self.fc2 = nn.Linear(384, 192)
        self.fc3 = nn.Linear(192, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = pool_relu(self.conv1(x))
        x = pool_relu(self.conv2(x))
        x = torch.relu(self.fc1(x.flatten(1)))
        x = torch.relu(self.fc2(x))
        return self.fc3(x)


def _conv_pool_twice(size: int) -> int:
    return ((size - 4) // 2 - 4) // 2


class SmallCNN(nn.Module):
    """Two 3x3 convolutions, one pooling and one linear layer; fits pictures from 4x4 on."""

    def __init__(self, shape: Shape, num_classes: int):
        super().__init__()
        channels, height, width = shape
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc = nn.Linear(32 * (height // 2) * (width // 2), num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.conv1(x))
        x = pool_relu(self.conv2(x))
        return self.fc(x.flatten(1))


class MLP(nn.Module):
    """Two hidden layers over the flattened input; fits any shape."""

    def __init__(self, shape: Shape, num_classes: int):
        super().__init__()
        self.fc1 = nn.Linear(torch.Size(shape).numel(), 128)
        self.fc2 = nn.Linear(128, 64)
        self.fc3 = nn.Linear(64, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.fc1(x.flatten(1)))
        x = torch.relu(self.fc2(x))
        return self.fc3(x)


MODELS: dict[str, Callable[[Shape, int], nn.Module]] = {"lenet5": LeNet5, "mlp": MLP, "small-cnn": SmallCNN}
_SMALLEST_SIDE = {"lenet5": 16, "small-cnn": 4}


def default_model(shape: Shape) -> str:
    """The model for data whose source names none."""
    if len(shape) != 3 or min(shape[1:]) < _SMALLEST_SIDE["small-cnn"]:
        return "mlp"
    return "lenet5" if min(shape[1:]) >= 28 else "small-cnn"


def model_factory(name: str, shape: Shape, num_classes: int) -> Factory:
    """A function that builds the named model for inputs of this shape."""
    if ":" in name:
        return partial(_own_class(name), shape, num_classes)
    if name not in MODELS:
        raise unknown("model", name, (*MODELS, "package.module:Class"))
    side = _SMALLEST_SIDE.get(name, 0)
    if side and (len(shape) != 3 or min(shape[1:]) < side):
        raise FedSeqError(
            f"model '{name}' takes pictures of at least {side}x{side}, and the data has shape {shape}. "
            f"Use --model {default_model(shape)}."
        )
    return partial(MODELS[name], shape, num_classes)


def _own_class(name: str) -> Callable[[Shape, int], nn.Module]:
    module_name, _, class_name = name.partition(":")
    if str(Path.cwd()) not in sys.path:  # a console script does not look in the current folder, where users keep theirs
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise FedSeqError(f"model '{name}': can't import {module_name}: {error}.") from None
    if not hasattr(module, class_name):
        raise unknown(f"class in {module_name}:", class_name, (n for n in vars(module) if not n.startswith("_")))
    if not callable(getattr(module, class_name)):
        raise FedSeqError(f"model '{name}': {class_name} is not a class or function that builds a module.")
    return getattr(module, class_name)
