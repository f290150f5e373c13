"""Whole runs on the embedded data: by names, with one's own parts, interrupted and continued."""

import json
import os
import signal

import numpy as np
import pytest
import torch
from torch import nn

import fedseq
from fedseq.basics.errors import FedSeqError
from fedseq.basics.stopping import Interrupted
from fedseq.options.resolve import resolve
from fedseq.rounds.prepare import named_parts
from fedseq.rounds.start import units_per_round
from fedseq.runs.reading import read_run
from fedseq.training.reporter import Quiet

SHORT = {"dataset": "digits", "grouping": "random", "rounds": 4, "engine": "serial"}
PLAIN = {name: value for name, value in SHORT.items() if name != "grouping"}  # for algorithms without superclients


class StopAfter(Quiet):
    """Sends this process Ctrl-C after a round, as a user would."""

    def __init__(self, round_):
        self.last = round_

    def round(self, record):
        if record["round"] == self.last:
            os.kill(os.getpid(), signal.SIGINT)


def files_of(folder):
    return {name: (folder / name).read_bytes() for name in ("metrics.jsonl", "weights.safetensors")}


def test_a_run_leaves_the_promised_files(tmp_path):
    run = fedseq.run(SHORT, tmp_path / "run", algorithm="fedseq")
    names = {path.name for path in run.folder.iterdir()}
    assert names >= {
        "config.yaml", "metrics.jsonl", "timing.jsonl", "weights.safetensors", "superclients.json", "environment.json",
        "clients.json", "checkpoints",
    }  # fmt: skip
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    groups = json.loads((run.folder / "superclients.json").read_text())["superclients"]
    assert sorted(client for group in groups for client in group) == list(range(100))
    for line in lines:
        assert 0 <= line["accuracy"] <= 1
        assert len(line["per_class_accuracy"]) == 10
        for unit, clients in zip(line["units"], line["clients"], strict=True):
            assert sorted(clients) == sorted(groups[unit])
        assert line["client_updates"] == sum(map(len, line["clients"]))
        # A hop moves the model down and up: small-cnn has 16*9+16 + 32*16*9+32 + 512*10+10 floats.
        floats = 16 * 9 + 16 + 32 * 16 * 9 + 32 + 512 * 10 + 10
        assert line["bytes_down"] == line["bytes_up"] == 4 * floats * line["client_updates"]
    assert run.config.num_clients == 100
    assert run.finished
    assert json.loads((run.folder / "environment.json").read_text())["torch"] == torch.__version__


def test_same_seed_same_bytes_and_another_seed_others(tmp_path):
    first, again, other = (
        files_of(fedseq.run(SHORT, tmp_path / str(i), seed=seed).folder) for i, seed in enumerate((0, 0, 1))
    )
    assert first == again
    assert first["weights.safetensors"] != other["weights.safetensors"]


@pytest.mark.parametrize(
    "algorithm",
    [
        "fedavg",
        "fedseq+feddyn",
        "scaffold",
        "fedseqinter",
        "centralized",
        "fedseq+fedavgm",
        "fedseq+fedacg+window",
        "fedseqinter+ghbm+ema",
    ],
)
def test_an_interrupted_run_continues_as_if_nothing_had_happened(tmp_path, algorithm):
    grouped = {"grouping": "random"} if "fedseq" in algorithm else {}
    wandering = {"merge_every": 3} if algorithm == "fedseqinter" else {}
    options = {"algorithm": algorithm, "rounds": 4, "engine": "serial", **grouped, **wandering}
    whole = fedseq.run(options, tmp_path / "whole")
    with pytest.raises(Interrupted):
        fedseq.run(options, tmp_path / "cut", reporter=StopAfter(2))
    assert read_run(tmp_path / "cut").rounds == 2
    assert not read_run(tmp_path / "cut").finished
    fedseq.resume(tmp_path / "cut")
    assert files_of(tmp_path / "cut") == files_of(whole.folder)


def test_a_crash_between_checkpoints_repeats_the_rounds_after_the_last_one(tmp_path):
    whole = fedseq.run(SHORT, tmp_path / "whole", checkpoint_every=2, rounds=5)
    with pytest.raises(Interrupted):
        fedseq.run(SHORT, tmp_path / "cut", checkpoint_every=2, rounds=5, reporter=StopAfter(3))
    # As after a power cut in round 4: the checkpoint of round 3 was never made, half a line was written.
    (tmp_path / "cut" / "checkpoints" / "000003.json").unlink()
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as file:
        file.write('{"round": 4, "accu')
    fedseq.resume(tmp_path / "cut")
    assert files_of(tmp_path / "cut") == files_of(whole.folder)


def test_a_finished_run_is_returned_as_it_is_and_more_rounds_may_be_asked_for(tmp_path):
    fedseq.run(SHORT, tmp_path / "run")
    before = files_of(tmp_path / "run")
    assert fedseq.resume(tmp_path / "run").rounds == 4
    assert files_of(tmp_path / "run") == before
    assert fedseq.resume(tmp_path / "run", rounds=6).rounds == 6
    assert files_of(tmp_path / "run") == files_of(fedseq.run({**SHORT, "rounds": 6}, tmp_path / "six").folder)


def test_a_run_that_reached_its_accuracy_is_not_trained_on(tmp_path):
    options = {**PLAIN, "algorithm": "centralized", "rounds": 30, "target_accuracy": 0.5}
    run = fedseq.run(options, tmp_path / "run")
    before = files_of(run.folder)
    (run.folder / "weights.safetensors").unlink()  # as after a crash between the last checkpoint and the final model
    fedseq.resume(run.folder)
    assert files_of(run.folder) == before


def test_fewer_rounds_than_were_run_are_refused_and_nothing_is_changed(tmp_path):
    run = fedseq.run(SHORT, tmp_path / "run")
    config = (run.folder / "config.yaml").read_bytes()
    with pytest.raises(FedSeqError, match="has run 4 rounds already"):
        fedseq.resume(run.folder, rounds=2)
    assert (run.folder / "config.yaml").read_bytes() == config


def test_resuming_is_exact_when_the_first_round_lost_everybody(tmp_path):
    options = {
        "algorithm": "fedavg", "num_clients": 10, "fraction": 0.1, "client_dropout": 0.7, "update_check": "size",
        "update_check_factor": 1.01, "seed": 4, "engine": "serial",
    }  # fmt: skip
    whole = fedseq.run(options, tmp_path / "whole", rounds=8)
    for rounds in (1, 2, 3, 8):
        parts = fedseq.run(options, tmp_path / "parts", rounds=rounds)
    assert parts.metrics == whole.metrics


def test_after_damage_later_checkpoints_are_good_again(tmp_path):
    options = {**PLAIN, "algorithm": "scaffold", "checkpoint_every": 1}
    fedseq.run({**options, "rounds": 4}, tmp_path / "run")
    memory = sorted((tmp_path / "run" / "checkpoints" / "memory").glob("*-4.safetensors"))[0]
    memory.write_bytes(memory.read_bytes()[:-1] + b"\x00")
    with pytest.warns(UserWarning, match="damaged"):
        fedseq.resume(tmp_path / "run", rounds=5)
    resumed = fedseq.resume(tmp_path / "run", rounds=6)
    assert resumed.metrics == fedseq.run({**options, "rounds": 6}, tmp_path / "whole").metrics


def test_another_config_or_other_data_is_not_continued(tmp_path):
    fedseq.run(SHORT, tmp_path / "run")
    with pytest.raises(FedSeqError, match=r"--lr 0\.03 -> 0\.2"):
        fedseq.run(SHORT, tmp_path / "run", lr=0.2)
    fedseq.run({**PLAIN, "algorithm": "centralized"}, tmp_path / "central")
    with pytest.raises(FedSeqError, match="--rounds 4 -> 8"):
        fedseq.resume(tmp_path / "central", rounds=8)  # a cosine schedule would have been another one from the start
    x, y = np.random.default_rng(0).normal(size=(40, 5)).astype(np.float32), np.arange(40) % 2
    for number in (0, 1):
        np.savez(tmp_path / "data.npz", x_train=x + number, y_train=y, x_test=x, y_test=y)
        options = {**SHORT, "dataset": f"npz:{tmp_path / 'data.npz'}", "num_clients": 4, "rounds": 1 + number}
        if number == 0:
            fedseq.run(options, tmp_path / "other")
        else:
            with pytest.raises(FedSeqError, match="other data"):
                fedseq.run(options, tmp_path / "other")


def test_a_second_process_in_the_folder_is_refused(tmp_path):
    from fedseq.runs.folder import RunFolder

    fedseq.run(SHORT, tmp_path / "run")
    with RunFolder(tmp_path / "run").held(), pytest.raises(FedSeqError, match="another process"):
        fedseq.resume(tmp_path / "run", rounds=5)
    assert fedseq.resume(tmp_path / "run", rounds=5).rounds == 5  # the lock file alone holds nobody up


def test_damage_falls_back_to_the_checkpoint_before_and_never_to_the_start(tmp_path):
    whole = fedseq.run(SHORT, tmp_path / "whole", rounds=6)
    fedseq.run(SHORT, tmp_path / "run", checkpoint_every=1, rounds=5)
    newest, older = (tmp_path / "run" / "checkpoints" / f"00000{i}.safetensors" for i in (5, 4))
    newest.write_bytes(newest.read_bytes()[:-1] + b"\x7f")
    with pytest.warns(UserWarning, match=r"000005\.safetensors is damaged"):
        fedseq.resume(tmp_path / "run", rounds=6)
    assert files_of(tmp_path / "run") == files_of(whole.folder)
    for path in (tmp_path / "run" / "checkpoints").glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:100])
    with pytest.warns(UserWarning, match="is damaged"), pytest.raises(FedSeqError, match="every checkpoint"):
        fedseq.resume(tmp_path / "run", rounds=7)
    assert not older.exists()  # only the last two are kept


def test_until_accuracy_and_eval_every(tmp_path):
    run = fedseq.run(PLAIN, tmp_path / "run", algorithm="centralized", rounds=30, target_accuracy=0.5, eval_every=2)
    assert run.evaluations[-1][1] >= 0.5 > max((accuracy for _, accuracy in run.evaluations[:-1]), default=0)
    assert run.rounds < 30
    assert all(line["accuracy"] is None for line in run.metrics if line["round"] % 2)
    assert run.finished


def test_start_from_given_weights(tmp_path):
    first = fedseq.run(SHORT, tmp_path / "first", rounds=1)
    weights = str(first.folder / "weights.safetensors")
    # A learning rate of (almost) nothing leaves the model as it was given.
    second = fedseq.run(SHORT, tmp_path / "second", rounds=1, init_weights=weights, lr=1e-30, weight_decay=0.0)
    assert second.metrics[0]["accuracy"] == first.metrics[0]["accuracy"]
    with pytest.raises(FedSeqError, match="does not fit"):
        fedseq.run(SHORT, tmp_path / "third", model="mlp", init_weights=weights)


def own_parts(seed=0, clients=6):
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.normal(size=(clients, 20, 5)).astype(np.float32))
    y = (x.sum(2) > 0).long()
    return [(x[k], y[k]) for k in range(clients)], (x.reshape(-1, 5), y.reshape(-1))


class TestBringYourOwn:
    def test_model_clients_test_set_and_algorithm(self, tmp_path):
        clients, test = own_parts()
        run = fedseq.federate(
            lambda: nn.Linear(5, 2), clients, test, fedseq.algorithms.fedseq(), groups=[(0, 1, 2), (3, 4, 5)],
            folder=tmp_path / "own", rounds=15, lr=0.5, fraction=1.0, engine="serial", weight_decay=0.0,
        )  # fmt: skip
        assert run.final_accuracy() > 0.9
        assert run.metrics[0]["client_updates"] == 6

    def test_the_same_folder_continues(self, tmp_path):
        clients, test = own_parts()

        def go(folder, **options):
            return fedseq.federate(
                lambda: nn.Linear(5, 2), clients, test, "fedavg", folder=tmp_path / folder, engine="serial", **options
            )

        whole = go("whole", rounds=6)
        go("parts", rounds=2)
        assert go("parts", rounds=6).metrics == whole.metrics
        with pytest.raises(FedSeqError, match="call the same function"):
            fedseq.resume(tmp_path / "whole")

    def test_a_loss_without_classes(self, tmp_path):
        clients, (x, _) = own_parts()
        clients = [(a, a.sum(1, keepdim=True)) for a, _ in clients]
        run = fedseq.federate(
            lambda: nn.Linear(5, 1), clients, (x, x.sum(1, keepdim=True)), "fedavg", loss=nn.functional.mse_loss,
            folder=tmp_path / "own", rounds=30, lr=0.2, fraction=1.0, engine="serial", weight_decay=0.0,
        )  # fmt: skip
        assert run.evaluations == []
        assert run.metrics[-1]["loss"] < 0.01 < run.metrics[0]["loss"]

    def test_centralized_is_one_client_with_everything(self, tmp_path):
        clients, test = own_parts()
        run = fedseq.federate(
            lambda: nn.Linear(5, 2), clients, test, "centralized", folder=tmp_path / "own", rounds=2, engine="serial"
        )
        assert run.metrics[0]["clients"] == [[0]]
        assert json.loads((run.folder / "clients.json").read_text())["examples"] == [120]

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"clients": []}, "no clients"),
            (
                {"clients": [(torch.zeros(5, 5), torch.zeros(4, dtype=torch.long))]},
                "client 0 has 5 inputs and 4 targets",
            ),
            ({"clients": [(torch.zeros(0, 5), torch.zeros(0, dtype=torch.long))]}, "client 0 has no examples"),
            ({"test": (torch.zeros(0, 5), torch.zeros(0, dtype=torch.long))}, "the test set has no examples"),
            ({"clients": [(torch.zeros(5, 5), torch.full((5,), -1))]}, "class -1 of client 0 is negative"),
            ({"clients": [(torch.zeros(5, 5), torch.zeros(5))]}, "all of one kind"),
            (
                {"clients": [(torch.zeros(5, 5), torch.zeros(5).long()), (torch.zeros(5, 7), torch.zeros(5).long())]},
                r"inputs of client 1 have the shape \[7\], and those of client 0 \[5\]",
            ),
            ({"test": (torch.zeros(5, 5), torch.zeros(5, 1).long())}, r"test set are integers of shape \[5, 1\]"),
            ({"test": (torch.zeros(5, 5), torch.zeros(5, 1))}, r"targets of the test set have the shape \[1\]"),
            ({"model": lambda: nn.Linear(7, 2)}, "cannot take a client's examples"),
            ({"test": (torch.zeros(5, 5), torch.tensor([0, 0, 0, 5, 0]))}, "cannot take the test set's examples"),
            ({"test": (torch.zeros(5, 5), torch.tensor([0, 0, 0, -2, 0]))}, "class -2 of the test set is negative"),
            ({"loss": nn.CrossEntropyLoss(reduction="none")}, "several numbers for a batch"),
            ({"model": nn.Linear(5, 2)}, "a function that builds"),
            ({"algorithm": 3}, "must be a name or an Algorithm"),
        ],
    )
    def test_parts_that_do_not_fit_are_refused(self, tmp_path, change, words):
        clients, test = own_parts()
        parts = {"model": lambda: nn.Linear(5, 2), "clients": clients, "test": test, "algorithm": "fedavg", **change}
        with pytest.raises(FedSeqError, match=words):
            fedseq.federate(**parts, folder=tmp_path / "own", rounds=1, engine="serial")

    def test_a_class_that_nobody_holds_is_told(self, tmp_path):
        clients, (x, _) = own_parts()
        with pytest.warns(UserWarning, match=r"no client holds class 2 and 1 more, which the test set has"):
            fedseq.federate(
                lambda: nn.Linear(5, 4), clients, (x, torch.arange(len(x)) % 4), "fedavg", folder=tmp_path / "own",
                rounds=1, engine="serial",
            )  # fmt: skip

    def test_another_algorithm_or_other_groups_are_not_continued(self, tmp_path):
        clients, test = own_parts()

        def go(algorithm, groups=None, **options):
            return fedseq.federate(
                lambda: nn.Linear(5, 2), clients, test, algorithm, groups=groups, engine="serial", **options
            )

        go(fedseq.algorithms.fedprox(0.1), folder=tmp_path / "a", rounds=2)
        with pytest.raises(FedSeqError, match="other parts or hyper-parameters"):
            go(fedseq.algorithms.fedprox(100.0), folder=tmp_path / "a", rounds=3)
        go("fedseq", [(0, 1, 2), (3, 4, 5)], folder=tmp_path / "b", rounds=2)
        with pytest.raises(FedSeqError, match="other groups"):
            go("fedseq", [(0, 1, 5), (2, 3, 4)], folder=tmp_path / "b", rounds=3)

    @pytest.mark.parametrize(
        ("groups", "words"),
        [
            ([(0, 1), (1, 2)], "client 1 more than once"),
            ([(0, 9)], "client 9"),
            ([], "leave out client 0"),
            ([()], "leave out client 0"),
        ],
    )
    def test_groups_that_make_no_sense_are_refused(self, tmp_path, groups, words):
        clients, test = own_parts()
        with pytest.raises(FedSeqError, match=words):
            fedseq.federate(lambda: nn.Linear(5, 2), clients, test, groups=groups, folder=tmp_path / "own", rounds=1)

    def test_index_arrays_with_shared_examples(self, tmp_path):
        _, test = own_parts()
        indices = [np.arange(k, k + 40) % 120 for k in range(50)]
        run = fedseq.federate(
            lambda: nn.Linear(5, 2), indices, test, "fedavg", data=test, folder=tmp_path / "own", rounds=2,
            engine="serial",
        )  # fmt: skip
        assert run.metrics[0]["client_updates"] == 10

    def test_batch_norm_dropout_and_a_one_example_client(self, tmp_path):
        clients, test = own_parts()
        clients = [*clients, (clients[0][0][:1], clients[0][1][:1]), (clients[1][0][:9], clients[1][1][:9])]

        def net():
            return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))

        runs = [
            fedseq.federate(
                net,
                clients,
                test,
                "fedavg",
                folder=tmp_path / name,
                rounds=3,
                fraction=1.0,
                batch_size=4,
                engine="serial",
            )
            for name in ("one", "two")
        ]
        assert runs[0].metrics == runs[1].metrics


def test_exemplars_are_the_same_in_every_run_and_never_tested_on():
    parts = [named_parts(resolve({"seed": seed}), Quiet()) for seed in (0, 1)]
    assert torch.equal(parts[0].exemplars.x, parts[1].exemplars.x)
    # 36 test examples of each digit: a tenth of them, 3, become exemplars.
    assert np.bincount(parts[0].exemplars.y).tolist() == [3] * 10
    assert len(parts[0].task.test.y) == 360 - 30


@pytest.mark.parametrize(("fraction", "units", "drawn"), [(0.2, 62, 12), (0.29, 100, 29), (0.01, 10, 1), (1.0, 7, 7)])
def test_units_per_round(fraction, units, drawn):
    assert units_per_round(fraction, units) == drawn
