"""What the public exemplars tell of a model, and of a change to it."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedseq.training.evaluation import Opinion, opinion
from fedseq.training.examples import Examples, model_input
from fedseq.training.weights import FlatModel

NO_LENGTH = 1e-12


@dataclass(frozen=True)
class ExemplarView:
    model: FlatModel  # to compute with
    exemplars: Examples
    num_classes: int

    def opinion(self, weights: Tensor) -> Opinion:
        """These weights are in the model then."""
        return opinion(self.model, weights, self.exemplars, self.num_classes)

    def lead(self, before: Tensor, after: Tensor, label: int, rivals: Sequence[int]) -> float:
        """By how much the change looks more like a step on exemplars of class `label` than on those of any rival.

        All of them get that label; a look is the cosine between the change and the step. `after` is in the model then.
        """
        if not rivals or not bool((self.exemplars.y == label).any()):
            return 0.0
        after = after.clone()  # it may be the model's own
        change = (after - before)[: len(self.model.parameters)]
        self.model.load(before)
        self.model.module.eval()
        own, *others = (self._look(change, target, label) for target in (label, *rivals))
        self.model.load(after)
        return own - max(others)

    def _look(self, change: Tensor, target: int, label: int) -> float:
        x = self.exemplars.x[self.exemplars.y == target]
        outputs = self.model.outputs(model_input(x, self.exemplars, self.model.channels_last))
        cross_entropy(outputs, torch.full_like(self.exemplars.y[: len(x)], label)).backward()
        self.model.take_gradient()
        gradient = self.model.gradient
        return -float(change @ gradient) / max(float(change.norm() * gradient.norm()), NO_LENGTH)
