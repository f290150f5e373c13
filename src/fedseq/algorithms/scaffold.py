"""SCAFFOLD (Karimireddy et al. 2020): control variates subtract what pulls a client away from the others.

Option 1 takes the client's new variate as its gradient at the model it was given (an extra pass over its data, no
weight decay); option 2 takes it from the distance travelled and needs plain SGD. In a chain, the model given is the
predecessor's, and the chain uploads the sum of its clients' changes: SCAFFOLD under FedSeq is not in the paper.
The first round, where all variates are zero, is FedAvg. Models are averaged by examples, variates over all K clients.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from fedseq.algorithms.base import Algorithm, Hop, Setting, State, UnitResult, UploadAndMemory
from fedseq.basics.errors import FedSeqError


def scaffold(option: int = 1) -> Algorithm:
    """SCAFFOLD (Karimireddy et al. 2020): control variates take out of each step what pulls a client from the others.

    Option 1 measures a client's variate by a pass over its data, option 2 takes it from the distance travelled.
    """
    if option not in (1, 2):
        raise FedSeqError(f"scaffold has options 1 and 2, not {option}.")
    return Algorithm(
        "scaffold",
        correct=add_variates,
        finish=finish_by_gradient if option == 1 else finish_by_distance,
        init=zero_variate,
        message=send_variate,
        observe=update_variate,
        extra_passes=1 if option == 1 else 0,
    )


def add_variates(gradient: Tensor, hop: Hop) -> None:
    gradient.add_(hop.message["c"])
    if "c" in hop.memory:
        gradient.sub_(hop.memory["c"])


def finish_by_gradient(hop: Hop) -> UploadAndMemory:
    return _replace_variate(hop, hop.gradient_at_start())


def finish_by_distance(hop: Hop) -> UploadAndMemory:
    if hop.velocity is not None:
        raise FedSeqError("scaffold option 2 needs plain SGD. Set momentum to 0 or use option 1.")
    travelled = (hop.start - hop.weights) / (hop.steps * hop.lr)
    return _replace_variate(hop, travelled - hop.message["c"] + hop.memory.get("c", 0.0))


def _replace_variate(hop: Hop, c: Tensor) -> UploadAndMemory:
    return {"c": c - hop.memory["c"] if "c" in hop.memory else c}, {"c": c}


def zero_variate(weights: Tensor, setting: Setting) -> State:
    return {"c": torch.zeros_like(weights[: setting.num_parameters])}


def send_variate(state: State) -> dict[str, Tensor]:
    return {"c": state["c"]}


def update_variate(state: State, results: Sequence[UnitResult], setting: Setting) -> State:
    """c += sum(c_k+ - c_k) / K"""
    c = state["c"].clone()
    for result in results:
        c.add_(result.uploads["c"], alpha=1 / setting.num_clients)
    return {**state, "c": c}
