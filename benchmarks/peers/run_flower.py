"""The round in Flower's simulation: two Ray actors with a core each."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from workload import CLIENTS, DRAWN, ROUNDS, SIZE, Readings, lenet5, train

client_app, server_app = ClientApp(), ServerApp()
readings = Readings()


@client_app.train()
def fit(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    model = lenet5()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    train(model, int(context.node_config["partition-id"]))
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": SIZE})}
    return Message(content=RecordDict(content), reply_to=message)


def end_of_round(number: int, arrays: ArrayRecord) -> MetricRecord:
    readings.take()
    return MetricRecord({"round": number})


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    strategy = FedAvg(fraction_train=DRAWN / CLIENTS, fraction_evaluate=0.0, min_train_nodes=DRAWN)
    strategy.start(grid, ArrayRecord(lenet5().state_dict()), num_rounds=ROUNDS, evaluate_fn=end_of_round)


if __name__ == "__main__":
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}}
    run_simulation(server_app, client_app, num_supernodes=CLIENTS, backend_config=resources)
    readings.report()
