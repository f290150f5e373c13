"""A model's weights as one flat float32 vector: parameters first, then float buffers (BatchNorm's running statistics).

The vector is what is trained, sent and averaged. Parameters that do not require a gradient are frozen: they lie in a
vector of their own, which is the same everywhere and never changes.

The module's tensors are views of the vector, so loading weights is one copy, an SGD step is one vector operation, and
aggregation and correction terms read like the paper's formulas. Convolution kernels lie channels-last in the vector,
because that is how the CPU's convolutions want them; saved files hold ordinary named tensors.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import open_plain, write_atomically
from fedseq.models import kernels
from fedseq.models.adapters import added_names, merged


@dataclass(frozen=True)
class FlatModel:
    module: nn.Module
    vector: Tensor  # parameters that are trained, then float buffers
    gradient: Tensor  # of the trained parameters, where `take_gradient` puts it
    parameters: Tensor  # the first part of `vector`
    frozen: Tensor  # parameters that are not trained
    views: dict[str, Tensor]  # of `vector`, by the module's own names
    trained: dict[nn.Parameter, Tensor]  # and where in `gradient` theirs belongs
    counters: dict[str, Tensor]  # integer buffers and their initial values: never sent, reset at every visit
    channels_last: bool
    precision: str = "float32"  # of what layers compute, where PyTorch's autocast holds it to be enough

    def outputs(self, x: Tensor) -> Tensor:
        """What the module makes of a batch, as float32 for the loss."""
        mixed = self.precision != "float32"
        with torch.autocast(x.device.type, getattr(torch, self.precision)) if mixed else contextlib.nullcontext():
            outputs: Tensor = self.module(x)
        return outputs.float() if mixed else outputs

    def take_gradient(self) -> None:
        """What backward() left at the parameters into `gradient`: one copy, where adding it to zeros would be two."""
        for parameter, part in self.trained.items():
            if parameter.grad is None:  # the loss does not depend on it
                part.zero_()
            else:
                part.copy_(parameter.grad)
                parameter.grad = None

    def descend(self, lr: float, weight_decay: float) -> None:
        """A step of SGD straight from where backward() left the gradients; `gradient` is not made."""
        for parameter, part in self.trained.items():
            gradient = part.zero_() if parameter.grad is None else parameter.grad
            kernels.descend(parameter.detach(), gradient, lr, weight_decay)
            parameter.grad = None

    def load(self, vector: Tensor) -> None:
        self.vector.copy_(vector)
        self.reset_counters()

    def reset_counters(self) -> None:
        for name, buffer in self.module.named_buffers():
            if name in self.counters:
                buffer.copy_(self.counters[name])


def flatten(module: nn.Module, device: str | torch.device = "cpu") -> FlatModel:
    """Move trained parameters and float buffers into one vector, and frozen parameters into another."""
    module = module.to(device=device, dtype=torch.float32)
    parameters = {name: tensor for name, tensor in module.named_parameters() if tensor.requires_grad}
    fixed = [tensor for tensor in module.parameters() if not tensor.requires_grad]
    if not parameters:
        why = ": requires_grad is False for all it has" if fixed else ""
        raise FedSeqError(f"model {type(module).__name__} has no parameters to train{why}.")
    # Buffers that the module itself does not save (persistent=False) are constants or caches: they stay where they are.
    saved = module.state_dict(keep_vars=True).keys()
    buffers = {name: buffer for name, buffer in module.named_buffers() if name in saved}
    floats = {name: buffer for name, buffer in buffers.items() if buffer.is_floating_point()}
    sizes = [tensor.numel() for tensor in (*parameters.values(), *floats.values())]
    vector = torch.empty(sum(sizes), device=device)
    num_parameters = sum(tensor.numel() for tensor in parameters.values())
    gradient = torch.zeros(num_parameters, device=device)

    views: dict[str, Tensor] = {}
    trained: dict[nn.Parameter, Tensor] = {}
    offset = 0
    for name, tensor in (*parameters.items(), *floats.items()):
        part = slice(offset, offset := offset + tensor.numel())
        view = _shaped(vector[part], tensor.shape)
        view.copy_(tensor.detach())
        tensor.data = view
        views[name] = view
        if name in parameters:
            trained[parameters[name]] = _shaped(gradient[part], tensor.shape)
    frozen = torch.empty(sum(tensor.numel() for tensor in fixed), device=device)
    for tensor, part in zip(fixed, frozen.split([tensor.numel() for tensor in fixed]), strict=True):
        tensor.data = _shaped(part, tensor.shape).copy_(tensor.detach())
    counters = {name: buffer.clone() for name, buffer in buffers.items() if name not in floats}
    channels_last = any(isinstance(layer, nn.Conv2d) for layer in module.modules())
    weights = vector[:num_parameters]
    return FlatModel(module, vector, gradient, weights, frozen, views, trained, counters, channels_last)


def _shaped(flat: Tensor, shape: torch.Size) -> Tensor:
    if len(shape) == 4:
        return flat.view(shape[0], shape[2], shape[3], shape[1]).permute(0, 3, 1, 2)
    return flat.view(shape)


def build_seeded(factory: Callable[[], nn.Module], seed: int, device: str = "cpu") -> FlatModel:
    """theta_0 and the frozen parameters: what the factory builds under this seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return flatten(factory(), device)


def named(model: FlatModel, vector: Tensor) -> dict[str, Tensor]:
    """The vector as the tensors that the module's `load_state_dict` takes."""
    model.load(vector)
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in merged(model.module).items()}


def save(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    # Tied parameters share memory, which safetensors refuses: every name gets a copy of its own.
    copies = {name: tensor.clone().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, save_tensors(copies, metadata=dict(metadata) if metadata else None))


def load(path: Path) -> dict[str, Tensor]:
    with _readable(path):
        return load_file(path)


def metadata(path: Path) -> dict[str, str]:
    with _readable(path), safe_open(path, "pt") as file:
        return file.metadata() or {}


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        with open_plain(path):  # or it would wait for a pipe
            yield
    except FileNotFoundError:
        raise FedSeqError(f"there is no weights file {path}.") from None
    except (SafetensorError, OSError) as error:
        raise FedSeqError(f"{path} is not a readable safetensors file: {error}") from None


def all_finite(tensor: Tensor) -> bool:
    """A sum is finite only if all its terms are. Where it is not it may have overflowed, and the extremes decide."""
    return math.isfinite(tensor.sum()) or all(math.isfinite(extreme) for extreme in torch.aminmax(tensor))


def read(path: Path, model: FlatModel) -> Tensor:
    """A weights file as a flat vector of this model. Adapters, which files never hold, stay as they were built."""
    tensors, state = load(path), model.module.state_dict()
    tensors |= {name: state[name] for name in added_names(model.module)}
    refuse_misfit(path, tensors, model.module)
    for name, tensor in tensors.items():
        if tensor.is_floating_point() != state[name].is_floating_point() or tensor.is_complex():
            raise FedSeqError(
                f"{path}: '{name}' holds {tensor.dtype}, and the model {state[name].dtype}. Convert the file."
            )
    model.module.load_state_dict(tensors)
    if not all(map(all_finite, tensors.values())):
        raise FedSeqError(f"{path} holds weights that are not finite.")
    return model.vector.clone()


def refuse_misfit(path: Path, tensors: Mapping[str, Tensor], module: nn.Module) -> None:
    expected = {name: tensor.shape for name, tensor in module.state_dict().items()}
    found = {name: tensor.shape for name, tensor in tensors.items()}
    if expected != found:
        name = next(n for n in (*expected, *found) if expected.get(n) != found.get(n))
        there, here = (
            f"of shape {tuple(shapes[name])}" if name in shapes else "missing" for shapes in (found, expected)
        )
        raise FedSeqError(
            f"{path} does not fit this model: '{name}' is {there} in the file and {here} in the model. "
            "Give the --model (and data set) it was trained with."
        )
