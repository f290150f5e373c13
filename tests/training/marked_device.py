"""A GPU that is not there: its tensors lie in the CPU's memory, marked, and what a GPU would refuse raises.

Within `MarkedDevice` a tensor that is made on or moved to cuda is marked, by its memory, and says so when asked for its
device; what is computed of marked tensors is marked. An operation on tensors of both places raises, and so does reading
a marked one with numpy. Numbers are the CPU's, so that results have its bits. What autograd does inside is not seen.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from fedseq.training.examples import _scaling

CPU, GPU = torch.device("cpu"), torch.device("cuda")
MOVES = ("to", "cpu", "copy_")  # from one place to the other
INDEXES = ("__getitem__", "__setitem__")  # a GPU's tensors may be indexed by the CPU's
LOOKS_ALONE = ("_parse_to", "_has_compatible_shallow_copy_type", "__set__", "untyped_storage", "autocast")


class MarkedDevice(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.marked: dict[int, Any] = {}  # storages by address, kept alive, as addresses are given again

    def __exit__(self, *details: Any) -> None:
        super().__exit__(*details)
        _scaling.cache_clear()  # what it holds is marked nowhere else

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name, given = getattr(function, "__name__", ""), dict(kwargs or {})
        if name == "__get__":
            asked = getattr(getattr(function, "__self__", None), "__name__", "")
            if asked == "device" and self.holds(args[0]):
                return GPU
            found = function(*args, **given)
            return self.mark(found) if asked == "grad" and self.holds(args[0]) else found  # autograd left it there
        if name in LOOKS_ALONE:
            return function(*args, **given)
        tensors = [leaf for leaf in tree_leaves((args, given)) if isinstance(leaf, Tensor)]
        here = [self.holds(tensor) for tensor in tensors]
        place = self.wanted(name, args, given)
        if place is not None:  # there is only the CPU to do it
            args = [CPU if _is_place(value) else value for value in args]
            given = {key: CPU if _is_place(value) else value for key, value in given.items()}
        if name == "numpy" and here[0] and not given.get("force"):
            raise TypeError("can't convert a tensor on a GPU to numpy")
        if name not in (*MOVES, *INDEXES) and any(here) and any(_counts(tensors, here)):
            raise RuntimeError(f"tensors on two devices in {name}")
        out = function(*args, **given)
        if place is not None:
            return tree_map(lambda found: self.put(found, place), out)
        if here and (here[0] if name in MOVES else any(here)):
            tree_map(self.mark, out)
        return out

    def wanted(self, name: str, args: Sequence[Any], given: Mapping[str, Any]) -> torch.device | None:
        """Where the result shall be, if that is said."""
        if name == "cpu":
            return CPU
        told = [value for value in (*args[1:], *given.values()) if _is_place(value)]
        if name == "to" and len(args) > 1 and isinstance(args[1], Tensor):
            return GPU if self.holds(args[1]) else CPU
        return torch.device(told[0]) if told and (name == "to" or "device" in given) else None

    def holds(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self.marked and tensor.numel() > 0

    def mark(self, found: Any) -> Any:
        if isinstance(found, Tensor):
            storage = found.untyped_storage()
            self.marked[storage.data_ptr()] = storage
        return found

    def put(self, found: Any, place: torch.device) -> Any:
        if not isinstance(found, Tensor) or self.holds(found) == (place.type != "cpu"):
            return found
        return found.clone() if place.type == "cpu" else self.mark(found.clone())


def _is_place(value: Any) -> bool:
    return isinstance(value, torch.device) or (isinstance(value, str) and value in ("cpu", "cuda"))


def _counts(tensors: Iterable[Tensor], here: Iterable[bool]) -> list[bool]:
    """Those on the CPU that a GPU would not take; single numbers it takes."""
    pairs = zip(tensors, here, strict=True)
    return [not marked and tensor.dim() > 0 and tensor.numel() > 0 for tensor, marked in pairs]
