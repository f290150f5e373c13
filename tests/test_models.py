import pytest
import torch
from torch import nn

from fedseq.errors import FedSeqError
from fedseq.models import LeNet5, default_model, model_factory


def plain_lenet5(model: LeNet5, x: torch.Tensor) -> torch.Tensor:
    """Hsu et al.'s order: convolution, ReLU, pooling."""
    x = nn.functional.max_pool2d(torch.relu(model.conv1(x)), 2)
    x = nn.functional.max_pool2d(torch.relu(model.conv2(x)), 2)
    x = torch.relu(model.fc2(torch.relu(model.fc1(x.flatten(1)))))
    return model.fc3(x)


def test_pooling_before_relu_changes_nothing():
    model, x = LeNet5((3, 32, 32), 10), torch.randn(4, 3, 32, 32)
    assert torch.allclose(model(x), plain_lenet5(model, x), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("lenet5", (3, 32, 32)), ("lenet5", (1, 28, 28)), ("small-cnn", (1, 8, 8)), ("mlp", (1, 8, 8)), ("mlp", (17,))],
)
def test_models_fit_their_shapes(name, shape):
    assert model_factory(name, shape, 7)()(torch.randn(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize(
    ("shape", "name"), [((3, 32, 32), "lenet5"), ((1, 8, 8), "small-cnn"), ((20,), "mlp"), ((1, 2, 2), "mlp")]
)
def test_default_model_fits(shape, name):
    assert default_model(shape) == name
    assert model_factory(name, shape, 3)()(torch.randn(2, *shape)).shape == (2, 3)


def test_a_users_own_class(tmp_path, monkeypatch):
    (tmp_path / "my_models.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Sequential):\n"
        "    def __init__(self, shape, num_classes):\n"
        "        super().__init__(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], num_classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert model_factory("my_models:Net", (1, 8, 8), 4)()(torch.randn(3, 1, 8, 8)).shape == (3, 4)
    with pytest.raises(FedSeqError, match="Did you mean 'Net'"):
        model_factory("my_models:Nett", (1, 8, 8), 4)


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("lenet", (3, 32, 32), "Did you mean 'lenet5'"),
        ("lenet5", (1, 8, 8), "Use --model small-cnn"),
        ("small-cnn", (20,), "Use --model mlp"),
        ("no_such_module:Net", (1, 8, 8), "can't import no_such_module"),
    ],
)
def test_models_that_do_not_fit_are_refused(name, shape, words):
    with pytest.raises(FedSeqError, match=words):
        model_factory(name, shape, 10)
