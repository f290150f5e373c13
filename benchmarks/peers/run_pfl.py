"""The round in pfl-research: its simulation runs in one process unless launched on several machines or GPUs."""

from functools import partial

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from workload import BATCH, CLIENTS, DRAWN, LR, ROUNDS, WEIGHT_DECAY, Readings, augmented, client_data, lenet5


class Net(nn.Module):
    """What PyTorchModel asks for: a loss and metrics."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = lenet5()

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)

    def loss(self, x: Tensor, y: Tensor, is_eval: bool = False) -> Tensor:
        return nn.functional.cross_entropy(self(augmented(x)), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted(self.loss(x, y, True).item() * len(y), len(y))}


class EndOfRound(TrainingProcessCallback):
    def __init__(self) -> None:
        self.readings = Readings()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.readings.take()
        return False, Metrics()


def user(client: int) -> Dataset:
    return Dataset(raw_data=list(client_data(client)), user_id=str(client))


def main() -> None:
    torch.set_num_threads(1)
    users = FederatedDataset(user, get_user_sampler("random", list(range(CLIENTS))))
    net, watch = Net(), EndOfRound()
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=ROUNDS + 1, evaluation_frequency=10**6, train_cohort_size=DRAWN, val_cohort_size=0
        ),
        backend=SimulatedBackend(training_data=users, val_data=users),
        model=PyTorchModel(
            model=net,
            local_optimizer_create=partial(torch.optim.SGD, weight_decay=WEIGHT_DECAY),
            central_optimizer=torch.optim.SGD(net.parameters(), 1.0),
        ),
        model_train_params=NNTrainHyperParams(local_learning_rate=LR, local_num_epochs=1, local_batch_size=BATCH),
        model_eval_params=NNEvalHyperParams(local_batch_size=BATCH),
        callbacks=[watch],
    )
    watch.readings.report()


if __name__ == "__main__":
    main()
