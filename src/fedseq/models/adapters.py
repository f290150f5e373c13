"""Fine-tuning: which part of a model is trained. What is not trained is neither sent nor stored in checkpoints.

LoRA is by Hu et al. 2022; its factor alpha/rank is 1 here, as the learning rate does the same.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from fedseq.basics.errors import FedSeqError
from fedseq.options.grammar import parse_train


class LowRank(nn.Module):
    """A linear layer that stays as it is, and a low-rank addition to its weights, which is trained.

    The addition is `up @ down`. It starts at zero: what is adapted computes what it did before.
    """

    def __init__(self, layer: nn.Linear, rank: int):
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        rank = min(rank, *layer.weight.shape)
        self.down = nn.Parameter(torch.empty(rank, layer.in_features))
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias) + linear(linear(x, self.down), self.up)


def trained_part(factory: Callable[[], nn.Module], train: str) -> Callable[[], nn.Module]:
    """The factory of a model of which only this part is trained: `all`, `head` or `lora:RANK`."""
    part, rank = parse_train(train)
    return factory if part == "all" else partial(_build, factory, part, rank)


def _build(factory: Callable[[], nn.Module], part: str, rank: int) -> nn.Module:
    module = factory()
    layers = [name for name, layer in module.named_modules() if type(layer) is nn.Linear]
    needed = 2 if part == "lora" else 1
    if len(layers) < needed:
        raise FedSeqError(
            f"--trainable {part} needs a model with {needed} or more fully connected layers (nn.Linear), and "
            f"{type(module).__name__} has {len(layers)}. Use --trainable {'head' if layers else 'all'}."
        )
    module.requires_grad_(False)
    module.get_submodule(layers[-1]).requires_grad_(True)
    for name in layers[:-1] if part == "lora" else []:
        parent, _, attribute = name.rpartition(".")
        layer = module.get_submodule(name)
        assert isinstance(layer, nn.Linear)
        setattr(module.get_submodule(parent), attribute, LowRank(layer, rank))
    return module


def adapted(module: nn.Module) -> dict[str, LowRank]:
    """The layers that something is added to, by what the names of their tensors begin with."""
    return {f"{name}.": layer for name, layer in module.named_modules() if isinstance(layer, LowRank)}


def added_names(module: nn.Module) -> set[str]:
    """Tensors that the model without adapters does not have."""
    return {f"{prefix}{part}" for prefix in adapted(module) for part in ("down", "up")}


def merged(module: nn.Module) -> dict[str, Tensor]:
    """The tensors of the model without adapters that computes what this one does: additions are added."""
    state = {name: tensor for name, tensor in module.state_dict().items() if name not in added_names(module)}
    with torch.no_grad():
        sums = {prefix: layer.weight + layer.up @ layer.down for prefix, layer in adapted(module).items()}
    return state | {f"{prefix}weight": weight for prefix, weight in sums.items()}
