import pytest
import torch
from torch import nn

from fedseq.basics.errors import FedSeqError
from fedseq.models import default_model, model_factory
from fedseq.models.networks import LeNet5


def plain_lenet5(model: LeNet5, x: torch.Tensor) -> torch.Tensor:
    """Hsu et al.'s order: convolution, ReLU, pooling."""
    for layer in (model.conv1, model.conv2):
        x = nn.functional.max_pool2d(torch.relu(nn.functional.conv2d(x, layer.weight, layer.bias)), 2)
    x = torch.relu(model.fc2(torch.relu(model.fc1(x.flatten(1)))))
    return model.fc3(x)


def test_pooling_before_relu_changes_nothing():
    model, x = LeNet5((3, 32, 32), 10), torch.randn(4, 3, 32, 32)
    assert torch.allclose(model(x), plain_lenet5(model, x), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("lenet5", (3, 32, 32)), ("lenet5", (1, 28, 28)), ("small-cnn", (1, 8, 8)), ("mlp", (1, 8, 8)), ("mlp", (17,)),
        ("cnn1d", (6, 100)), ("cnn1d", (1, 4)), ("resnet20", (3, 32, 32)), ("resnet20", (1, 9, 8)),
    ],
)  # fmt: skip
def test_models_fit_their_shapes(name: str, shape: tuple[int, ...]) -> None:
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
        ("cnn1d", (3, 32, 32), r"takes series of at least 4 points in time, .* Use --model lenet5"),
        ("cnn1d", (6, 3), r"has shape \(6, 3\)"),
        ("no_such_module:Net", (1, 8, 8), "cannot import no_such_module"),
    ],
)
def test_models_that_do_not_fit_are_refused(name, shape, words):
    with pytest.raises(FedSeqError, match=words):
        model_factory(name, shape, 10)


def test_the_parameters_of_the_network_for_series() -> None:
    """Convolutions 6*32*5 + 32 and 32*64*5 + 64, linear layers 64*64 + 64 and 64*7 + 7: for windows of any length."""
    expected = 992 + 10_304 + 4_160 + 455
    for length in (50, 100):
        model = model_factory("cnn1d", (6, length), 7)()
        assert sum(parameter.numel() for parameter in model.parameters()) == expected


def test_the_network_for_series_does_not_care_where_something_happens() -> None:
    """A bump far from the ends, moved by the factor 4 of two poolings, gives the same features in another place."""
    model, early = model_factory("cnn1d", (2, 64), 3)(), torch.zeros(1, 2, 64)
    early[:, :, 20:24] = torch.randn(1, 2, 4)
    assert torch.allclose(model(early), model(early.roll(16, dims=2)), atol=1e-6)


def test_the_parameters_of_the_residual_network() -> None:
    """He et al.'s ResNet-20, whose norms have as many.

    Convolutions 432, 6 * 2304, 4608 + 5 * 9216, 18432 + 5 * 36864; norms 2 * (16 + 6 * (16 + 32 + 64)); the head 650.
    """
    model = model_factory("resnet20", (3, 32, 32), 10)()
    expected = 432 + 13_824 + 50_688 + 202_752 + 1_376 + 650
    assert sum(parameter.numel() for parameter in model.parameters()) == expected == 269_722
    assert not list(model.buffers())  # nothing of a client's but its parameters is averaged


def test_a_picture_is_normalised_by_itself_alone() -> None:
    model, x = model_factory("resnet20", (3, 8, 8), 4)(), torch.randn(3, 3, 8, 8)
    assert torch.allclose(model(x)[:1], model(x[:1]), atol=1e-5)


def test_text_is_read_in_order_whatever_integers_it_comes_in() -> None:
    model = model_factory("gru", (5,), 7)()
    x = torch.tensor([[0, 1, 2, 3, 6], [6, 3, 2, 1, 0]])
    assert model(x).shape == (2, 7)
    assert torch.equal(model(x), model(x.to(torch.uint8)))
    assert not torch.allclose(model(x)[0], model(x)[1], atol=1e-4)
    with pytest.raises(FedSeqError, match="takes text, whose inputs are lists of characters by number"):
        model_factory("gru", (3, 8, 8), 7)
