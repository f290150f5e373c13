"""A model's weights as one flat float32 vector: parameters first, then float buffers (BatchNorm's running statistics).

The module's tensors are views of the vector, so loading weights is one copy, an SGD step is one vector operation, and
aggregation and correction terms read like the paper's formulas. Convolution kernels lie channels-last in the vector,
because that is how the CPU's convolutions want them; saved files hold ordinary named tensors.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from fedseq.errors import FedSeqError
from fedseq.files import write_atomically


@dataclass(frozen=True)
class FlatModel:
    module: nn.Module
    vector: Tensor  # parameters, then float buffers
    gradient: Tensor  # of the parameters; backward() adds into it
    parameters: Tensor  # the first part of `vector`
    views: dict[str, Tensor]  # by the module's own names
    counters: dict[str, Tensor]  # integer buffers and their initial values: never sent, reset at every visit
    channels_last: bool

    def load(self, vector: Tensor) -> None:
        self.vector.copy_(vector)
        self.reset_counters()

    def reset_counters(self) -> None:
        for name, buffer in self.module.named_buffers():
            if name in self.counters:
                buffer.copy_(self.counters[name])


def flatten(module: nn.Module, device: str | torch.device = "cpu") -> FlatModel:
    """Move the module's parameters and float buffers into one vector."""
    module = module.to(device=device, dtype=torch.float32)
    parameters = dict(module.named_parameters())
    if not parameters:
        raise FedSeqError(f"model {type(module).__name__} has no parameters to train.")
    # Buffers that the module itself does not save (persistent=False) are constants or caches: they stay where they are.
    saved = module.state_dict(keep_vars=True).keys()
    buffers = {name: buffer for name, buffer in module.named_buffers() if name in saved}
    floats = {name: buffer for name, buffer in buffers.items() if buffer.is_floating_point()}
    sizes = [tensor.numel() for tensor in (*parameters.values(), *floats.values())]
    vector = torch.empty(sum(sizes), device=device)
    num_parameters = sum(tensor.numel() for tensor in parameters.values())
    gradient = torch.zeros(num_parameters, device=device)

    views: dict[str, Tensor] = {}
    offset = 0
    for name, tensor in (*parameters.items(), *floats.items()):
        part = slice(offset, offset := offset + tensor.numel())
        view = _shaped(vector[part], tensor.shape)
        view.copy_(tensor.detach())
        tensor.data = view
        views[name] = view
        if name in parameters:
            tensor.grad = _shaped(gradient[part], tensor.shape)
    counters = {name: buffer.clone() for name, buffer in buffers.items() if name not in floats}
    channels_last = any(isinstance(layer, nn.Conv2d) for layer in module.modules())
    return FlatModel(module, vector, gradient, vector[:num_parameters], views, counters, channels_last)


def _shaped(flat: Tensor, shape: torch.Size) -> Tensor:
    if len(shape) == 4:
        return flat.view(shape[0], shape[2], shape[3], shape[1]).permute(0, 3, 1, 2)
    return flat.view(shape)


def initial(factory: Callable[[], nn.Module], seed: int) -> Tensor:
    """theta_0: what the factory builds under this seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return flatten(factory()).vector


def named(model: FlatModel, vector: Tensor) -> dict[str, Tensor]:
    """The vector as the tensors that the module's `load_state_dict` takes."""
    model.load(vector)
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in model.module.state_dict().items()}


def save(path: Path, tensors: Mapping[str, Tensor]) -> None:
    # Tied parameters share memory, which safetensors refuses: every name gets a copy of its own.
    write_atomically(path, save_tensors({name: tensor.clone().contiguous() for name, tensor in tensors.items()}))


def read(path: Path, model: FlatModel) -> Tensor:
    """A weights file as a flat vector of this model."""
    try:
        tensors = load_file(path)
    except FileNotFoundError:
        raise FedSeqError(f"there is no weights file {path}.") from None
    except (SafetensorError, OSError) as error:
        raise FedSeqError(f"{path} is not a readable safetensors file: {error}") from None
    expected = {name: tensor.shape for name, tensor in model.module.state_dict().items()}
    found = {name: tensor.shape for name, tensor in tensors.items()}
    if expected != found:
        name = next(n for n in (*expected, *found) if expected.get(n) != found.get(n))
        describe = {False: "missing", True: "of shape"}
        raise FedSeqError(
            f"{path} does not fit this model: '{name}' is "
            f"{describe[name in found]} {tuple(found.get(name, ())) or ''} in the file and "
            f"{describe[name in expected]} {tuple(expected.get(name, ())) or ''} in the model. "
            "Give the --model (and data set) it was trained with."
        )
    model.module.load_state_dict(tensors)
    if not all(math.isfinite(float(tensor.sum())) for tensor in tensors.values()):
        raise FedSeqError(f"{path} holds weights that are not finite.")
    return model.vector.clone()
