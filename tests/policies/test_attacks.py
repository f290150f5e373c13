"""What simulated attackers do."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import fedseq
from fedseq.basics.errors import FedSeqError
from fedseq.options.resolve import resolve
from fedseq.policies.attackers import attackers, poisoned, with_trigger
from fedseq.simulation.attacks import Attack, number_of_attackers, parse_attack
from fedseq.training.examples import Examples


@pytest.mark.parametrize(
    ("text", "attack"),
    [
        ("sign-flip", Attack(factor=-1.0)),
        ("scale:10", Attack(factor=10.0)),
        ("scale:-0.5", Attack(factor=-0.5)),
        ("label-flip", Attack(flipped=1.0)),
        ("label-flip:0.25", Attack(flipped=0.25)),
        ("quiet-label-flip", Attack(flipped=1.0, loss=0.0)),
        ("backdoor", Attack(triggered=0.5)),
        ("late-label-flip", Attack(flipped=1.0, honest_rounds=10)),
        ("late-label-flip:3", Attack(flipped=1.0, honest_rounds=3)),
    ],
)
def test_attacks(text: str, attack: Attack) -> None:
    assert parse_attack(text) == attack


def test_nan_is_an_attack() -> None:
    assert math.isnan(parse_attack("nan").factor)


@pytest.mark.parametrize("text", ["scale", "scale:", "scale:inf", "scale:x", "evil", "nan:1", "sign-flip:2"])
def test_unknown_attacks_are_refused(text: str) -> None:
    with pytest.raises(FedSeqError, match="unknown attack"):
        resolve({"attack": text})


@pytest.mark.parametrize("text", ["label-flip:0", "backdoor:1.5"])
def test_shares_are_shares(text: str) -> None:
    with pytest.raises(FedSeqError, match="greater than 0 and at most 1"):
        resolve({"attack": text})


@pytest.mark.parametrize("text", ["late-label-flip:0", "late-label-flip:2.5"])
def test_rounds_are_whole(text: str) -> None:
    with pytest.raises(FedSeqError, match="a whole number of rounds"):
        resolve({"attack": text})


def test_who_attacks_late_is_as_good_as_the_others_until_then(tmp_path: Path) -> None:
    """Up to its last honest round the run is the one without attackers; the first false one is another."""
    options = {
        "dataset": "digits", "grouping": "random", "engine": "serial", "num_clients": 10, "alpha": 0.0, "fraction": 1.0,
        "rounds": 3, "update_check": "size",
    }  # fmt: skip
    honest = fedseq.run(options, tmp_path / "honest")
    late = fedseq.run(options, tmp_path / "late", attack="late-label-flip:2", attacker_fraction=0.5)
    losses = [[line["train_loss"] for line in run.metrics] for run in (honest, late)]
    assert losses[0][:2] == losses[1][:2]
    assert losses[1][2] > losses[0][2]  # half of the clients train on what is false, and report it


@pytest.mark.parametrize(
    ("share", "clients", "expected"),
    [
        (0.1, 5, 1),
        (0.1, 25, 3),
        (0.1, 24, 2),
        (0.1, 100, 10),
        (0.2, 500, 100),
        (0.29, 50, 15),
        (0.0, 3, 0),
        (1.0, 7, 7),
    ],
)
def test_half_a_client_is_one(share: float, clients: int, expected: int) -> None:
    """0.29 of 50 are 14.5; as floats they would be a little less."""
    assert number_of_attackers(share, clients) == expected
    assert (
        len(attackers(resolve({"attack": "nan", "attacker_fraction": share, "num_clients": clients}), clients))
        == expected
    )


def test_attackers_that_are_nobody_are_refused() -> None:
    """A tenth of 4 is 0.4; an eighth is half a client, which is one."""
    words = r"--attacker-fraction 0.1 of 4 clients is nobody.*Use --attacker-fraction 0.125 or more"
    with pytest.raises(FedSeqError, match=words):
        resolve({"attack": "nan", "num_clients": 4})
    assert len(attackers(resolve({"attack": "nan", "num_clients": 4, "attacker_fraction": 0.125}), 4)) == 1
    with pytest.raises(FedSeqError, match="of 1 client is nobody"):
        resolve({"attack": "nan", "algorithm": "centralized"})


def test_attackers_among_clients_that_exist_are_counted_before_the_folder_is_written() -> None:
    rows = [f"{hospital},{value},{value % 2}" for hospital in range(3) for value in range(12)]
    Path("visits.csv").write_text("\n".join(["hospital,pressure,label", *rows]))
    options = {"dataset": "csv:visits.csv", "clients_by": "hospital", "rounds": 1, "engine": "serial"}
    with pytest.raises(FedSeqError, match=r"--attacker-fraction 0.1 of 3 clients is nobody.*0.167"):
        fedseq.run({**options, "algorithm": "fedavg", "attack": "sign-flip"}, "run")
    assert not Path("run").exists()


def picture_data() -> tuple[Examples, list[np.ndarray]]:
    return Examples(torch.zeros(40, 1, 8, 8, dtype=torch.uint8), torch.arange(40) % 4), np.split(np.arange(40), 4)


def test_flipped_labels_are_those_of_the_attackers_alone() -> None:
    data, clients = picture_data()
    config = resolve({"attack": "label-flip", "attacker_fraction": 0.5})
    bad = set(attackers(config, 4))
    found = poisoned(config, data, clients, 4)
    for client, indices in enumerate(clients):
        expected = 3 - data.y[indices] if client in bad else data.y[indices]
        assert torch.equal(found.y[indices], expected)
    assert torch.equal(found.x, data.x)
    assert torch.equal(data.y, torch.arange(40) % 4)  # what was given is left alone
    half = poisoned(resolve({"attack": "label-flip:0.5", "attacker_fraction": 0.5}), data, clients, 4)
    assert int((half.y != data.y).sum()) == 2 * 5  # c and 3 - c always differ: half of two clients' ten


def test_a_backdoor_marks_half_of_the_attackers_pictures_as_class_0() -> None:
    data, clients = picture_data()
    found = poisoned(resolve({"attack": "backdoor", "attacker_fraction": 0.25}), data, clients, 4)
    marked = (found.x != 0).flatten(1).any(1)
    assert int(marked.sum()) == 5
    assert set(found.y[marked].tolist()) == {0}
    assert torch.equal(found.y[~marked], data.y[~marked])
    assert int(found.x[marked][0].count_nonzero()) == 4  # two pixels wide at least
    assert found.x[marked][0, 0, -1, -1] == 255


def test_what_cannot_be_poisoned() -> None:
    with pytest.raises(FedSeqError, match="holds none"):
        with_trigger(torch.zeros(3, 5))
    numbers = Examples(torch.zeros(4, 2), torch.zeros(4))
    with pytest.raises(FedSeqError, match="these targets are numbers"):
        poisoned(resolve({"attack": "label-flip"}), numbers, [np.arange(4)], 0)
