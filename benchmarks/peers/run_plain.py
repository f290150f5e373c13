"""The round as a loop over clients, without any framework."""

import copy

import torch
from workload import CLIENTS, DRAWN, ROUNDS, Readings, lenet5, train

torch.set_num_threads(1)
server, readings = lenet5(), Readings()
readings.take()
for _ in range(ROUNDS):
    total = {name: torch.zeros_like(tensor) for name, tensor in server.state_dict().items()}
    for client in torch.randperm(CLIENTS)[:DRAWN].tolist():
        model = copy.deepcopy(server)
        train(model, client)
        for name, tensor in model.state_dict().items():
            total[name] += tensor / DRAWN
    server.load_state_dict(total)
    readings.take()
readings.report()
