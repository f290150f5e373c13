"""Relay: SGD with momentum whose velocity goes from client to client with the model.

v <- beta v + gradient; theta <- theta - lr v. Momentum that starts anew at each visit never gets going in a client's
few steps; along a chain it does. A chain starts with no velocity, or with a share of the mean of the last round's.
beta = 0 is FedAvg. It doubles what a hop moves: the velocity is as large as the parameters. Weight decay is applied
to the model alone.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from fedseq.algorithms.base import Algorithm, Hop, Setting, State, UnitResult, UploadAndMemory, weighted_mean
from fedseq.basics.errors import FedSeqError


def relay(momentum: float = 0.9, start: float = 0.0) -> Algorithm:
    return Algorithm(
        "relay",
        correct=partial(follow_velocity, momentum=momentum),
        finish=hand_velocity_on,
        init=no_velocity,
        message=send_velocity,
        handed_on=("velocity",),
        observe=partial(keep_share_of_velocity, share=start),
    )


def follow_velocity(gradient: Tensor, hop: Hop, momentum: float) -> None:
    if hop.steps == 0:
        if hop.velocity is not None:
            raise FedSeqError("relay has a momentum of its own. Set --momentum 0.")
        hop.velocity = hop.message["velocity"].clone()
    assert hop.velocity is not None
    gradient.copy_(hop.velocity.mul_(momentum).add_(gradient))


def hand_velocity_on(hop: Hop) -> UploadAndMemory:
    return {"velocity": hop.message["velocity"] if hop.velocity is None else hop.velocity}, {}


def no_velocity(weights: Tensor, setting: Setting) -> State:
    return {"velocity": torch.zeros_like(weights[: setting.num_parameters])}


def send_velocity(state: State) -> dict[str, Tensor]:
    return {"velocity": state["velocity"]}


def keep_share_of_velocity(state: State, results: Sequence[UnitResult], setting: Setting, share: float) -> State:
    """What the next round's chains start with: a share of the mean of what this round's ended with."""
    if not results or not share:
        return state
    mean = weighted_mean([result.uploads["velocity"] for result in results], [result.examples for result in results])
    return {**state, "velocity": share * mean}
