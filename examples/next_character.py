"""Which character comes next? Clients are the topics of Python's own manual, each with words of its own.

The text comes with Python (`pydoc_data.topics`, about half a megabyte), so nothing is downloaded; another version of
Python has another text, and gives other numbers.

    python examples/next_character.py fedavg
    python examples/next_character.py fedseq
"""

import sys
from pydoc_data.topics import topics
from typing import Any

import torch
from torch import Tensor

import fedseq
from fedseq.models.networks import GRU

# The number of classes is told by the highest label, so a character that surely follows others comes last.
ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789.,:;()[]'\"=_-*+/\\<>\n "
NUMBER = {character: number for number, character in enumerate(ALPHABET)}


def windows(text: str, length: int = 32, step: int = 3) -> tuple[Tensor, Tensor]:
    """Pieces of a text as numbers of characters, and the character that follows each."""
    numbers = torch.tensor([NUMBER[character] for character in text.lower() if character in NUMBER])
    pieces = numbers.unfold(0, length + 1, step)
    return pieces[:, :-1], pieces[:, -1]


def clients_and_test(count: int, longest: int) -> tuple[list[tuple[Tensor, Tensor]], tuple[Tensor, Tensor]]:
    """The longest topics, a client each; the last fifth of every text is kept for the test."""
    texts = [topics[name][:longest] for name in sorted(topics, key=lambda name: (-len(topics[name]), name))[:count]]
    clients = [windows(text[: len(text) * 4 // 5]) for text in texts]
    held_out = [windows(text[len(text) * 4 // 5 :]) for text in texts]
    return clients, (torch.cat([x for x, _ in held_out]), torch.cat([y for _, y in held_out]))


def train(algorithm: str, rounds: int, count: int = 40, longest: int = 8000, **options: Any) -> fedseq.Run:
    clients, test = clients_and_test(count, longest)
    learning: dict[str, Any] = {"lr": 1.0, "max_grad_norm": 1.0, "weight_decay": 0.0, "fraction": 0.2}
    if algorithm.startswith("fedseq"):  # by weights: some character may be too rare in the test to estimate clients by
        learning |= {"approximator": "classifier-last", "pretrain_epochs": 1}
    return fedseq.federate(GRU, clients, test, algorithm, rounds=rounds, **{**learning, **options})


if __name__ == "__main__":
    run = train(sys.argv[1] if len(sys.argv) > 1 else "fedseq", rounds=20)
    print(f"{run.config.algorithm}: {run.final_accuracy():.3f} of the next characters, in {run.folder}")  # noqa: T201
