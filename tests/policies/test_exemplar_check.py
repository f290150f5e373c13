"""The gate's check by exemplars: its arithmetic by hand, on one visit, and on whole runs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedseq
from fedseq.algorithms.base import FEDAVG
from fedseq.basics.errors import FedSeqError
from fedseq.options.resolve import resolve
from fedseq.policies.attackers import Attackers, attackers
from fedseq.policies.exemplar_check import Standing, Usual, Visit, claim, measure, reason_to_refuse, usual
from fedseq.policies.gate import Gate, GateMemory, Note
from fedseq.simulation.attacks import Attack
from fedseq.training.chains import run_job
from fedseq.training.evaluation import class_losses
from fedseq.training.examples import Examples
from fedseq.training.jobs import Job, Result, Task
from fedseq.training.sgd import build

OTHERS = Usual(efficiency=0.8, moved=1.0, surprise=0.0, spread=0.1)


def test_a_claim_is_what_the_first_visit_helped() -> None:
    assert claim((2.0, 2.0, 2.0), (1.0, 2.5, 1.5)) == (1 / 1.5, 0.0, 0.5 / 1.5)
    assert claim((1.0, 1.0), (1.5, 1.0)) == (0.5, 0.5)


def test_a_visit_by_hand() -> None:
    found = measure((0.5, 0.5, 0.0), (1.0, 2.0, 3.0), (0.8, 1.6, 4.0), length=0.3, rate=0.03, loss=1.7)
    # gained 0.5 * 0.2 + 0.5 * 0.4, whatever the third class suffers; moved 0.3^2 / 0.03; surprise 1.7 - (0.5 + 1)
    assert found == pytest.approx((0.3, 3.0, 0.2))


def test_what_is_usual_is_medians() -> None:
    assert usual([]) is None
    visits = [Visit(1.0, 2.0, 0.0), Visit(3.0, 4.0, 0.3), Visit(0.9, 1.0, 0.1)]
    # efficiencies 0.5, 0.75, 0.9; surprises 0, 0.1, 0.3 have the median 0.1 and lie 0.1, 0, 0.2 away from it
    assert usual(visits) == pytest.approx((0.75, 2.0, 0.1, 0.1))


def test_older_visits_count_less() -> None:
    standing = Standing((1.0,)).after(Visit(1.0, 2.0, 0.3), 0.1).after(Visit(1.0, 1.0, 0.1), 0.1)
    assert standing[1:] == pytest.approx((1.9, 2.8, 0.18, 1.9))


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (Visit(0.8, 1.0, 0.0), None),
        # the doubt is worth 0.5 * 0.8 * 1 = 0.4: it covers a loss of 0.3, and (0.4 - 0.3) / (0.4 + 0.5) = 0.111
        (Visit(-0.3, 0.4, 0.0), "gains 0.111 for its length, and others 0.8"),
        (Visit(-0.5, 1.0, 0.0), "raises the loss of the classes it claims by 0.5"),
        # (0.1 + 0.4) / (3 + 0.5) = 0.143, less than 0.35 * 0.8 = 0.28
        (Visit(0.1, 3.0, 0.0), "gains 0.143 for its length, and others 0.8"),
        # 0.75 / 1.5 = 0.5, more than 4 * 0.1
        (Visit(0.8, 1.0, 0.75), "its loss is 0.5 above that of the classes it claims"),
    ],
)
def test_reasons_of_a_client_without_a_past(now: Visit, reason: str | None) -> None:
    assert reason_to_refuse(Standing((1.0,)).after(now, 0.0), now, OTHERS) == reason


def test_a_good_past_does_not_buy_a_visit_that_undoes_the_claim() -> None:
    good = Standing((1.0,), gained=8.0, moved=10.0, visits=10.0)
    assert reason_to_refuse(good.after(Visit(0.1, 1.0, 0.0), 0.0), Visit(0.1, 1.0, 0.0), OTHERS) is None
    flipped = Visit(-0.8, 1.0, 0.0)
    assert "raises the loss" in str(reason_to_refuse(good.after(flipped, 0.0), flipped, OTHERS))


def test_the_gate_remembers_through_json() -> None:
    memory = GateMemory((0.1, 0.2), 1, {3: Standing((0.1, 0.9), 1 / 3, 0.2, -0.1, 1.9)}, (Visit(1 / 7, 2.0, 0.1),))
    assert GateMemory.read(json.loads(json.dumps(memory.written()))) == memory


def visited(attack: Attack, lr: float = 1e-3) -> Result:
    """Client 0 holds exactly the exemplars of class 0, and client 1 some of class 1; each visits a linear model."""
    x = torch.randn(40, 5, generator=torch.Generator().manual_seed(3))
    y = torch.arange(40) // 20
    exemplars = Examples(x, y)
    clients = [np.arange(20), np.arange(20, 40)]
    policies = (Attackers({0: attack}), Gate(20.0, exemplars))
    task = Task(lambda: nn.Linear(5, 2), exemplars, clients, exemplars, 2, batch_size=64, policies=policies)
    model = build(task)
    note = Note(1e9, {0: Standing((1.0, 0.0)), 1: Standing((0.0, 1.0))})
    job = Job(0, 0, 1, ((0, 0), (1, 0)), model.vector.clone(), FEDAVG, lr, notes={"gate": note})
    return run_job(task, model, job)


@pytest.mark.parametrize(("factor", "efficiency"), [(1.0, 1.0), (-1.0, -1.0), (5.0, 0.2)])
def test_a_plain_step_gains_what_its_length_promises(factor: float, efficiency: float) -> None:
    """f(w - r g) = f(w) - r |g|^2 + O(r^2) and |r g|^2 / r is r |g|^2; s times the step gains s, and has s^2."""
    first, second = visited(Attack(factor=factor)).learned["gate"].visits
    assert first.gained / first.moved == pytest.approx(efficiency, rel=0.02)
    assert second.gained / second.moved == pytest.approx(1.0, rel=0.02)
    assert abs(second.surprise) < 1e-5  # its examples are the exemplars, and it trained on them in one step


def test_class_losses_are_means_of_cross_entropy() -> None:
    examples = Examples(torch.eye(2), torch.tensor([2, 2]))
    task = Task(lambda: nn.Linear(2, 3), examples, [np.arange(2)], examples, 3)
    model = build(task)
    weights = torch.zeros(9)
    weights[:6] = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]).flatten()
    # logits (1, 0, 0) and (0, 0, 0): -log of e^0 / (e + 2), and of 1 / 3
    expected = (np.log(np.e + 2) + np.log(3)) / 2
    assert class_losses(model, weights, task.test, 3) == pytest.approx((0.0, 0.0, expected))


OPTIONS: dict[str, Any] = {
    "dataset": "digits", "grouping": "random", "engine": "serial", "num_clients": 20, "fraction": 1.0, "alpha": 0.0,
    "rounds": 3, "update_check": "exemplars", "lr": 0.1,
}  # fmt: skip


@pytest.fixture(scope="module")
def flipped(tmp_path_factory: pytest.TempPathFactory) -> fedseq.Run:
    folder = tmp_path_factory.mktemp("flipped") / "run"
    return fedseq.run(OPTIONS, folder, attack="sign-flip", attacker_fraction=0.2)


def test_clients_that_flip_the_sign_are_refused_by_name_and_no_others(flipped: fedseq.Run) -> None:
    bad = set(attackers(flipped.config, 20))
    refused = [hop["client"] for line in flipped.metrics for hop in line["skipped"]]
    assert len(bad) == 4
    assert set(refused) == bad
    assert len(refused) >= 2 * len(bad)  # of three visits each
    assert all("claims" in hop["reason"] or "gains" in hop["reason"] for hop in flipped.metrics[-1]["skipped"])


def test_the_same_on_workers_and_after_an_interruption(flipped: fedseq.Run, tmp_path: Path) -> None:
    attack = {"attack": "sign-flip", "attacker_fraction": 0.2}
    elsewhere = fedseq.run({**OPTIONS, **attack, "engine": "processes", "workers": 2, "rounds": 2}, tmp_path / "run")
    assert elsewhere.metrics == flipped.metrics[:2]
    assert fedseq.resume(tmp_path / "run", rounds=3).metrics == flipped.metrics


def test_the_check_by_exemplars_is_asked_for_and_needs_exemplars(tmp_path: Path) -> None:
    assert resolve({"update_check": "exemplars"}).checks_exemplars
    assert resolve({}).update_check == "none"
    with pytest.raises(FedSeqError, match="needs public exemplars"):
        resolve({"update_check": "exemplars", "exemplars": 0})
    clients = [(torch.zeros(2, 1), torch.zeros(2, 1))] * 2
    with pytest.raises(FedSeqError, match="needs classes"):
        fedseq.federate(
            lambda: nn.Linear(1, 1), clients, clients[0], "fedavg", loss=nn.functional.mse_loss,
            folder=tmp_path / "run", update_check="exemplars",
        )  # fmt: skip
