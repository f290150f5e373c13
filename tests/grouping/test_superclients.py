"""Pre-training and grouping on the embedded data."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import fedseq
from fedseq.basics.errors import FedSeqError
from fedseq.data.partition import label_counts
from fedseq.engines import SerialEngine
from fedseq.grouping import quality
from fedseq.grouping.pretraining import classifier_layers, estimate, pretrain, similarity
from fedseq.grouping.superclients import criterion_of, default_min_samples, form_superclients
from fedseq.options.resolve import resolve
from fedseq.rounds.prepare import named_parts
from fedseq.training.reporter import QUIET, Quiet
from fedseq.training.sgd import build
from fedseq.training.weights import flatten

OPTIONS = {"num_clients": 30, "pretrain_epochs": 3, "engine": "serial"}
CONFIG = resolve(OPTIONS)


class Counting(Quiet):
    def __init__(self):
        self.stages = []

    def stage(self, done, total, what):
        self.stages.append((done, total))


@pytest.fixture(scope="module")
def parts():
    return named_parts(CONFIG, QUIET)


def pretrained(parts, folder, epochs=(3,), keep=True, reporter=QUIET):
    engine = SerialEngine(parts.task)
    model = build(parts.task)
    return pretrain(
        parts.task, model, engine, model.vector.clone(), list(epochs), 0.1, parts.exemplars, folder, keep, reporter
    )


def test_confidence_knows_the_class_of_a_one_class_client(parts, tmp_path):
    # 1437 examples of 10 classes over 30 clients: 47 or 48 each, so most clients hold one class.
    vectors = pretrained(parts, tmp_path)[3].confidence["paper"]
    counts = label_counts(parts.task.train.y.numpy(), parts.task.clients, 10)
    alone = (counts > 0).sum(1) == 1
    assert alone.sum() >= 10
    assert (vectors[alone].argmax(1) == counts[alone].argmax(1)).mean() > 0.9
    assert np.allclose(vectors.sum(1), 1, atol=1e-6)


def test_more_epochs_continue_fewer(parts, tmp_path):
    at_once = pretrained(parts, tmp_path / "a", (3,))[3]
    in_steps = pretrained(parts, tmp_path / "b", (1, 3))
    assert np.array_equal(at_once.weights, in_steps[3].weights)
    assert not np.array_equal(in_steps[1].weights, in_steps[3].weights)


def test_a_second_call_trains_nobody_and_an_interrupted_one_only_the_rest(parts, tmp_path):
    whole = pretrained(parts, tmp_path / "whole")[3]

    class Stop(Counting):
        def stage(self, done, total, what):
            super().stage(done, total, what)
            if done == 11:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrained(parts, tmp_path / "cut", reporter=Stop())
    rest = Counting()
    continued = pretrained(parts, tmp_path / "cut", reporter=rest)[3]
    assert rest.stages[0] == (12, 30)
    assert np.array_equal(continued.weights, whole.weights)
    again = Counting()
    pretrained(parts, tmp_path / "cut", reporter=again)
    assert again.stages == []


def scaled(scale):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(64, 10)

        def forward(self, x):
            return self.last(x.flatten(1)) * scale

    return Net


def test_a_model_that_prints_the_same_and_computes_something_else_is_pretrained_anew(parts, tmp_path):
    for scale, trained in ((1.0, 30), (1.0, 0), (2.0, 30)):
        model = replace(parts, task=replace(parts.task, factory=scaled(scale), kernels="torch"))
        seen = Counting()
        pretrained(model, tmp_path, reporter=seen)
        assert len(seen.stages) == trained


def test_similarity_is_the_cosine_of_the_parameters(parts, tmp_path):
    product = pretrained(parts, tmp_path)[3]
    matrix = similarity(product, columns_at_once=1000)
    a, b = (torch.from_numpy(np.array(product.weights[k])).double() for k in (0, 20))
    assert matrix[0, 20] == pytest.approx(float(nn.functional.cosine_similarity(a, b, dim=0)), abs=1e-9)
    assert np.allclose(np.diag(matrix), 1)


def test_classifier_layers_are_the_weights_of_the_linear_layers():
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3))
    first, last = module[2].weight.detach().clone(), module[4].weight.detach().clone()
    model = flatten(module)
    parts = [model.vector[part] for part in classifier_layers(model)]
    assert torch.equal(parts[0], first.flatten())
    assert torch.equal(parts[1], last.flatten())
    with pytest.raises(FedSeqError, match="no fully connected layer"):
        classifier_layers(flatten(nn.Conv2d(1, 1, 3)))


@pytest.mark.parametrize("approximator", ["confidence", "classifier-all", "classifier-last2", "classifier-last"])
def test_every_approximator_mixes_better_than_chance(parts, tmp_path, approximator):
    """Groups of 8 of 30 clients that hold about one class each: greedy must find more classes than random does."""
    config = resolve({**OPTIONS, "approximator": approximator})
    engine = SerialEngine(parts.task)
    formed = form_superclients(config, parts.task, parts.model, parts.exemplars, engine, parts.theta, tmp_path)
    assert sorted(client for group in formed.grouping.groups for client in group) == list(range(30))
    counts = label_counts(parts.task.train.y.numpy(), parts.task.clients, 10)
    distinct = quality(counts, formed.grouping.groups).means()["distinct"]
    rng = np.random.default_rng(0)
    chance = []
    for _ in range(200):
        order = rng.permutation(30)
        chance.append(quality(counts, [order[:8], order[8:16], order[16:]]).means()["distinct"])
    assert distinct > np.mean(chance)
    if approximator != "confidence":
        vectors, reduction = estimate(approximator, "paper", pretrained(parts, tmp_path)[3])
        assert vectors.shape == (30, reduction.kept)
        assert reduction.possible == 29
        assert reduction.weights == 512 * 10  # small-cnn has one linear layer, which is the last and all


def test_a_client_that_diverged_is_grouped_as_unknown(tmp_path):
    parts = named_parts(CONFIG, QUIET)
    x = parts.task.train.x.float() / 255
    x[parts.task.clients[7]] = torch.inf
    task = replace(parts.task, train=replace(parts.task.train, x=x, mean=(), std=()))
    engine = SerialEngine(task)
    formed = form_superclients(
        CONFIG, task, parts.model, replace(parts.exemplars, x=x[:30], mean=(), std=()), engine, parts.theta, tmp_path
    )
    assert formed.grouping.unknown == (7,)
    assert sorted(client for group in formed.grouping.groups for client in group) == list(range(30))


def test_the_papers_criterion_is_the_default():
    assert criterion_of(CONFIG) == ("confidence", "kl", "greedy")
    assert criterion_of(resolve({"grouping": "random"})) == (None, None, "random")
    assert criterion_of(resolve({"approximator": "classifier-last"})) == ("classifier-last", "cosine", "greedy")


def test_clients_without_examples_are_left_out(tmp_path):
    x = torch.randn(40, 4)
    y = torch.arange(40) % 2
    clients = [np.arange(10), np.zeros(0, dtype=int), np.arange(10, 25), np.arange(25, 40)]
    run = fedseq.federate(
        lambda: nn.Linear(4, 2), clients, (x, y), "fedseq", data=(x, y), grouping="random", min_samples=20, rounds=2,
        fraction=1.0, engine="serial", folder=tmp_path / "run",
    )  # fmt: skip
    groups = json.loads((run.folder / "superclients.json").read_text())["superclients"]
    assert sorted(client for group in groups for client in group) == [0, 2, 3]


@pytest.mark.parametrize(
    ("sizes", "most", "expected"),
    [([100] * 500, 11, 800), ([15] * 37 + [14] * 63, 11, 112), ([10] * 5, 11, 50), ([1], 11, 1), ([0, 0, 1], 11, 1),
     ([10, 20, 30] * 9, 2, 60)],
)  # fmt: skip
def test_default_min_samples(sizes, most, expected):
    assert default_min_samples(np.array(sizes), most) == expected
