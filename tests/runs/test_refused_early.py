"""What cannot be run is told before the folder is written: the corrected command can take the same folder."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import fedseq
from fedseq import FedSeqError
from fedseq.api.experiment import execute
from fedseq.cli import main
from fedseq.options.resolve import resolve
from fedseq.rounds.prepare import named_parts
from fedseq.runs.reading import read_run
from fedseq.training.reporter import QUIET

SMALL: dict[str, Any] = {"dataset": "digits", "num_clients": 20, "rounds": 1, "engine": "serial"}


def convolutions(shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(shape[0], num_classes, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"init_weights": "typo.safetensors"}, "there is no weights file typo.safetensors"),
        ({"grouping": "random", "min_samples": 9999}, "no superclient can hold min_samples=9999"),
        ({"model": f"{__name__}:convolutions", "approximator": "classifier-last"}, "has no fully connected layer"),
    ],
)
def test_the_folder_is_left_for_the_corrected_command(options: dict[str, Any], words: str) -> None:
    with pytest.raises(FedSeqError, match=words):
        fedseq.run({**SMALL, **options}, "run")
    assert not Path("run").exists()
    assert fedseq.run({**SMALL, "grouping": "random"}, "run").rounds == 1


def test_batches_of_one_are_refused_where_their_variance_is_needed() -> None:
    pair = torch.zeros(6, 4), torch.arange(6) % 2
    with pytest.raises(FedSeqError, match=r"BatchNorm needs. Use --batch-size 2"):
        fedseq.federate(normalised, [pair, pair], pair, "fedavg", batch_size=1, rounds=1, folder="run")
    assert not Path("run").exists()


@pytest.mark.parametrize("targets", [torch.arange(6)[:, None] % 2, torch.eye(2, dtype=torch.int64).repeat(3, 1)])
def test_several_integers_for_an_example_are_no_class(targets: torch.Tensor) -> None:
    """Model and loss are content with both; nobody can count how often each class is right."""

    def loss(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (outputs - y).square().mean()

    pair = torch.zeros(6, 4), targets
    words = rf"targets of client 0 are integers of shape \[6, {targets.shape[1]}\].*give \[6\]"
    with pytest.raises(FedSeqError, match=words):
        fedseq.federate(lambda: nn.Linear(4, 2), [pair, pair], pair, "fedavg", loss=loss, rounds=1, folder="run")
    assert not Path("run").exists()
    as_numbers = pair[0], targets.float()
    fedseq.federate(
        lambda: nn.Linear(4, 2), [as_numbers], as_numbers, "fedavg", loss=loss, rounds=1, folder="run", engine="serial"
    )


def test_what_cannot_be_described_leaves_no_folder() -> None:
    """A run's own description fails: a class beyond those there are, which a caller of parts may get wrong."""
    parts = named_parts(resolve({**SMALL, "algorithm": "fedavg"}), QUIET)
    wrong = replace(parts, task=replace(parts.task, num_classes=4))
    with pytest.raises(ValueError):
        execute(wrong, "run")
    assert not Path("run").exists()


@pytest.mark.parametrize("most", [1, 3, 5])
def test_few_clients_make_small_superclients(most: int) -> None:
    """20 clients of which at most so many belong together: no number of examples is asked that they do not have."""
    run = fedseq.run(SMALL, "run", grouping="random", max_clients=most)
    groups = json.loads((run.folder / "superclients.json").read_text())["superclients"]
    assert max(map(len, groups)) == most
    assert sorted(client for group in groups for client in group) == list(range(20))


def test_a_run_goes_on_without_the_weights_it_began_from() -> None:
    first = fedseq.run(SMALL, "first", algorithm="fedavg")
    save_file(load_file(first.folder / "weights.safetensors"), "start.safetensors")
    options = {**SMALL, "algorithm": "fedavg", "init_weights": "start.safetensors"}
    whole = fedseq.run(options, "whole", rounds=3)
    fedseq.run(options, "cut", rounds=2)
    Path("start.safetensors").unlink()
    assert fedseq.resume("cut", rounds=3).rounds == 3
    assert Path("cut/metrics.jsonl").read_bytes() == (whole.folder / "metrics.jsonl").read_bytes()
    with pytest.raises(FedSeqError, match="there is no weights file"):  # from which it would have to begin
        fedseq.resume("cut", restart=True)
    assert read_run("cut").finished


def test_options_go_over_those_of_a_config_that_do_not_fit() -> None:
    config = fedseq.run(SMALL, "seq", grouping="random", superclients_per_chain=2).config
    assert fedseq.run(config, "avg", algorithm="fedavg").config.algorithm == "fedavg"


def test_a_run_that_stopped_at_its_target_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    words = "run --dataset digits --algorithm centralized --rounds 9 --target-accuracy 0.2 --out run --engine serial"
    assert main(words.split()) == 0
    assert "To go on: fedseq resume run --target-accuracy null" in capsys.readouterr().out
    stopped = read_run("run").rounds
    assert stopped < 9
    assert main(["resume", "run", "--target-accuracy", "null"]) == 0
    assert "To go on" not in capsys.readouterr().out
    assert read_run("run").rounds == 9


def test_a_home_that_nobody_has_is_one_sentence() -> None:
    with pytest.raises(FedSeqError, match="no such user's home is known here"):
        fedseq.run({**SMALL, "dataset": "csv:~nosuchuser/visits.csv"}, "run")
    assert not Path("run").exists()


def test_all_data_in_one_place_has_no_names_of_clients() -> None:
    rows = [f"{hospital},{value},{value % 2}" for hospital in range(5) for value in range(12)]
    Path("visits.csv").write_text("\n".join(["hospital,pressure,label", *rows]))
    options = {"dataset": "csv:visits.csv", "clients_by": "hospital", "rounds": 1, "engine": "serial"}
    clients = json.loads((fedseq.run(options, "run", algorithm="centralized").folder / "clients.json").read_text())
    assert (len(clients["examples"]), "names" in clients) == (1, False)
