"""An algorithm of your own: SCAFFOLD whose control variates are smoothed over a client's visits."""

from functools import partial

import torch
from sklearn.datasets import load_digits

import fedseq
from fedseq import Algorithm
from fedseq.algorithms import fedseq as superclients


def smoothed(keep: float = 0.5) -> Algorithm:
    return Algorithm(
        "smoothed", correct=correct, finish=partial(finish, keep=keep), init=init, message=message, observe=observe
    )


def correct(gradient, hop):  # on a client, at every step: change the batch gradient in place
    gradient.add_(hop.message["c"]).sub_(hop.memory.get("c", 0.0))


def finish(hop, keep):  # on a client, after its last step: what it uploads beside its model, what it remembers
    old = hop.memory.get("c", torch.zeros_like(hop.start))
    slope = (hop.start - hop.weights) / (hop.steps * hop.lr) - hop.message["c"] + old
    new = keep * old + (1 - keep) * slope
    return {"change": new - old}, {"c": new}


def init(weights, setting):  # on the server, once: what its state holds beside the model
    return {"c": torch.zeros_like(weights[: setting.num_parameters])}


def message(state):  # on the server, every round: what the clients are sent beside the model
    return {"c": state["c"]}


def observe(state, results, setting):  # on the server, every round: what it learns from the uploads
    return {**state, "c": state["c"] + sum(result.uploads["change"] for result in results) / setting.num_clients}


if __name__ == "__main__":
    x, y = (torch.as_tensor(array) for array in load_digits(return_X_y=True))
    x, y, test = x[:1500].float() / 16, y[:1500], (x[1500:].float() / 16, y[1500:])
    clients = [(x[y == digit], y[y == digit]) for digit in range(10)]  # each knows one digit only
    groups = [(0, 2, 4, 6, 8), (1, 3, 5, 7, 9)]
    for algorithm, chains in (("fedavg", None), (smoothed(), None), (superclients(smoothed()), groups)):
        run = fedseq.federate(
            partial(torch.nn.Linear, 64, 10), clients, test, algorithm, groups=chains, rounds=20, fraction=1
        )
        print(f"{run.config.algorithm}: {run.final_accuracy():.1%}")  # noqa: T201
