import copy

import pytest
import torch
from torch import nn

from fedseq.basics.errors import FedSeqError
from fedseq.models.networks import LeNet5
from fedseq.training import weights


class Mixed(nn.Module):
    """Kernels, BatchNorm with its buffers and counter, and a tied layer."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.one = nn.Linear(4, 4, bias=False)
        self.two = nn.Linear(4, 4, bias=False)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.two(self.one(self.norm(self.conv(x)).mean((2, 3))))


def test_parameters_come_first_then_float_buffers():
    model = weights.flatten(Mixed())
    assert len(model.parameters) == 3 * 4 * 9 + 4 + 4 + 4 + 16  # kernel, bias, scale, shift, tied matrix
    assert len(model.vector) == len(model.parameters) + 4 + 4  # running mean and variance; the counter stays out
    assert model.parameters.data_ptr() == model.vector.data_ptr()


def test_flat_module_computes_what_the_module_computed():
    module = Mixed().eval()
    x = torch.randn(5, 3, 8, 8)
    expected = copy.deepcopy(module)(x)
    assert torch.allclose(weights.flatten(module).module.eval()(x), expected, atol=1e-6)


def test_the_flat_gradient_is_taken_from_the_parameters():
    module = Mixed()
    twin = copy.deepcopy(module)
    model = weights.flatten(module)
    x = torch.randn(5, 3, 8, 8)
    for one in (model.module, twin):
        one(x).square().sum().backward()
    model.take_gradient()
    for mine, parameter in zip(model.trained.values(), twin.parameters(), strict=True):
        assert torch.allclose(mine, parameter.grad, rtol=1e-4, atol=1e-5)
        assert mine.untyped_storage().data_ptr() == model.gradient.untyped_storage().data_ptr()
    assert model.gradient.abs().sum() > 0


def test_a_parameter_that_the_loss_does_not_depend_on_has_gradient_zero():
    model = weights.flatten(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)))
    first, second = model.module[0], model.module[1]
    second(first(torch.ones(1, 2))).sum().backward()
    model.take_gradient()
    first(torch.ones(1, 2)).sum().backward()  # of the first layer alone
    model.take_gradient()
    # d sum(Wx + b) = 1 for each weight with x = 1 and each bias; nothing of the batch before is left.
    assert model.gradient.tolist() == [1.0] * 6 + [0.0] * 6


def test_a_step_from_the_parameters_is_the_step_from_the_flat_gradient() -> None:
    """To the bit; the layer that the loss does not depend on decays alone."""
    x, lr, decay = torch.randn(5, 3, 8, 8), 0.1, 0.01
    module = nn.ModuleDict({"used": Mixed(), "unused": nn.Linear(2, 2)})
    models = [weights.flatten(copy.deepcopy(module)) for _ in range(2)]
    for model in models:
        model.module.get_submodule("used")(x).square().mean().backward()
    models[0].descend(lr, decay)
    models[1].take_gradient()
    models[1].parameters.sub_(models[1].gradient.add_(models[1].parameters, alpha=decay), alpha=lr)
    assert torch.equal(models[0].vector, models[1].vector)
    assert all(parameter.grad is None for parameter in models[0].trained)


def test_saved_weights_are_named_tensors_that_load_state_dict_takes(tmp_path):
    module = Mixed()
    original = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    model = weights.flatten(module)
    weights.save(tmp_path / "w.safetensors", weights.named(model, model.vector.clone()))
    fresh = Mixed()
    from safetensors.torch import load_file

    fresh.load_state_dict(load_file(tmp_path / "w.safetensors"))
    for name, tensor in fresh.state_dict().items():
        assert torch.equal(tensor, original[name]), name
    assert torch.equal(weights.read(tmp_path / "w.safetensors", weights.flatten(Mixed())), model.vector)


def test_load_resets_counters():
    model = weights.flatten(Mixed())
    start = model.vector.clone()
    model.module.train()(torch.randn(4, 3, 8, 8))
    assert model.module.norm.num_batches_tracked == 1
    model.load(start)
    assert model.module.norm.num_batches_tracked == 0
    assert torch.equal(model.vector, start)


def test_initial_weights_follow_from_the_seed_and_leave_the_global_generator_alone():
    factory = lambda: LeNet5((3, 32, 32), 10)  # noqa: E731
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    first, again, other = (weights.build_seeded(factory, seed).vector for seed in (1, 1, 2))
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(("classes", "count"), [(10, 797_962), (100, 815_332)])
def test_lenet5_has_the_papers_number_of_parameters(classes, count):
    assert len(weights.flatten(LeNet5((3, 32, 32), classes)).parameters) == count


def test_files_that_do_not_fit_are_refused(tmp_path):
    model = weights.flatten(Mixed())
    weights.save(tmp_path / "other.safetensors", {"x": torch.zeros(2)})
    (tmp_path / "junk.safetensors").write_bytes(b"<html>not found</html>")
    for name, words in (("other", "does not fit"), ("junk", "not a readable"), ("absent", "there is no")):
        with pytest.raises(FedSeqError, match=words):
            weights.read(tmp_path / f"{name}.safetensors", model)
    with pytest.raises(FedSeqError, match="no parameters"):
        weights.flatten(nn.ReLU())


def test_large_weights_are_read_and_infinite_ones_are_not(tmp_path):
    """Two times 3e38 is more than a float32 holds, 3.4e38."""
    model = weights.flatten(nn.Linear(2, 1))
    for name, value in (("large", 3e38), ("infinite", float("inf"))):
        tensors = {"weight": torch.full((1, 2), value), "bias": torch.zeros(1)}
        weights.save(tmp_path / f"{name}.safetensors", tensors)
    assert weights.read(tmp_path / "large.safetensors", model).tolist() == pytest.approx([3e38, 3e38, 0.0])
    with pytest.raises(FedSeqError, match="not finite"):
        weights.read(tmp_path / "infinite.safetensors", model)
