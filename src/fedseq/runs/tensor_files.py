"""Tensors in files that are checked when they are read: parts of checkpoints, and memory that RAM has no room for."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import hashed, read_plain, write_atomically


class DamagedFile(Exception):  # noqa: N818 - whoever reads it decides what that means
    """It is missing, or is not what was written."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Returns the digest without which the file cannot be read."""
    content = save({key: tensor.detach().cpu().clone().contiguous() for key, tensor in tensors.items()})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)
    return hashlib.sha256(content).hexdigest()


def read_tensors(path: Path, digest: str, device: str) -> dict[str, Tensor]:
    try:
        if hashed(path).hexdigest() != digest:  # in pieces: a file in its place may be of any length
            raise ValueError("its checksum is wrong" if path.exists() else "it is gone")
        return {key: tensor.to(torch.device(device)) for key, tensor in load(read_plain(path, None)).items()}
    except (OSError, ValueError, SafetensorError) as error:
        raise DamagedFile(str(error)) from None


@dataclass(frozen=True)
class Stored(Mapping[str, Tensor]):
    """A client's memory that lies in a file. It reads like the dict it stands for, and keeps nothing of what is read.

    Sent to another process it becomes that dict, as the other may run where the file is not.
    """

    path: Path
    digest: str
    names: tuple[str, ...]
    device: str

    def load(self) -> dict[str, Tensor]:
        try:
            return read_tensors(self.path, self.digest, self.device)
        except DamagedFile as error:
            raise FedSeqError(
                f"{self.path}, where a client's memory was kept, is damaged: {error}. "
                "Resume the run: it goes on from a checkpoint that does without this file, if there is one."
            ) from None

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.names:  # whoever asks for what is not there need not read the rest
            raise KeyError(name)
        return self.load()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self.load(),)
