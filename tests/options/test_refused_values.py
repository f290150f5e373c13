"""Values that nobody means, or that no machine can hold: each is refused in one sentence, before anything begins."""

import math

import pytest

import fedseq
from fedseq.basics.errors import FedSeqError
from fedseq.cli import main
from fedseq.cli.console import ConsoleReporter, make_console
from fedseq.options.config import all_options
from fedseq.options.config_files import coerce, read_yaml
from fedseq.options.resolve import resolve
from fedseq.privacy.accountant import Accountant

TEXTS = [name for name, row in all_options().items() if str in row.kinds]
NUMBERS = [name for name, row in all_options().items() if {int, float} & set(row.kinds)]


@pytest.mark.parametrize("name", TEXTS)
def test_an_empty_text_is_an_unset_variable(name):
    with pytest.raises(FedSeqError, match=f"--{name.replace('_', '-')} is empty"):
        coerce(name, "")
    with pytest.raises(FedSeqError, match="takes a text"):
        coerce(name, "a\0b")


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_weights_and_files_cannot_hold(name):
    for value in ("1e39", 10**40):
        with pytest.raises(FedSeqError, match=r"takes numbers up to|takes a whole number"):
            coerce(name, value)


@pytest.mark.parametrize("name", ["window", "momentum_rounds", "superclient_epochs", "pretrain_epochs", "workers"])
def test_what_as_many_things_are_kept_of_has_a_limit(name):
    algorithm = {"window": "fedseq+window", "momentum_rounds": "fedseq+ghbm"}.get(name, "fedseq")
    engine = {"engine": "processes"} if name == "workers" else {}
    assert resolve({"algorithm": algorithm, **engine, name: 1000})
    with pytest.raises(FedSeqError, match="must be from 1 to 1,000, not 1001"):
        resolve({"algorithm": algorithm, **engine, name: 1001})


def test_options_given_twice_in_a_file(tmp_path):
    file = tmp_path / "mine.yaml"
    for text in ("lr: 0.1\nseed: 1\nlr: 0.2\n", "local-epochs: 1\nlocal_epochs: 2\n"):
        file.write_text(text)
        with pytest.raises(FedSeqError, match=f"{text.split(':')[0].replace('-', '_')} is given twice"):
            read_yaml(file)


@pytest.mark.parametrize("noise", [1e-80, 1e-7])
def test_noise_that_is_none(noise):
    with pytest.raises(FedSeqError, match=r"--dp-noise-multiplier must be 0, or at least 0\.000001"):
        resolve({"dp_clip_norm": 1.0, "dp_noise_multiplier": noise})


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("noise", [1e-6, 1e12])
@pytest.mark.parametrize("share", [None, 0.2])
def test_the_accountant_can_do_with_all_noise_that_is_taken(noise, share):
    epsilon = Accountant(noise, 1e-5, 1.0, share).epsilon(1000)
    assert epsilon >= 0
    assert not math.isnan(epsilon)


@pytest.mark.parametrize(("folder", "reason"), [("a\0b", "a NUL byte"), ("d/" * 1500, "too many levels|too long")])
def test_a_run_folder_that_cannot_be(folder, reason):
    with pytest.raises(FedSeqError, match=f"cannot make the run folder.*{reason}"):
        fedseq.run(dataset="digits", rounds=1, folder=folder)


# --- defaults that a user would not expect ---------------------------------------------------------------------------


@pytest.mark.parametrize("dataset", ["npz:mine.npz", "folder:pictures", "csv:mine.csv", "parquet:mine.parquet"])
def test_a_users_own_file_is_not_dealt_one_class_a_client_unasked(dataset):
    config = resolve({"dataset": dataset})
    assert (config.alpha, config.partition) == (math.inf, "iid")
    assert resolve({"dataset": dataset, "alpha": 0}).partition == "shards"
    assert resolve({"dataset": dataset, "partition": "shards"}).alpha == 0
    assert resolve({"dataset": dataset, "clients_by": "ward"}).partition == "natural"
    assert resolve({"dataset": "digits"}).partition == "shards"


@pytest.mark.parametrize(("clients", "enough"), [(3, "0.67"), (9, "0.23")])
def test_a_fraction_that_draws_one_client_warns_and_says_which_draws_two(clients, enough, tmp_path):
    options = {"dataset": "digits", "algorithm": "fedavg", "num_clients": clients, "rounds": 1, "engine": "serial"}
    words = f"--fraction 0.2 of {clients} clients draws one a round.*Use --fraction {enough} or more"
    with pytest.warns(UserWarning, match=words):
        assert fedseq.run(options, tmp_path / "one").metrics[0]["client_updates"] == 1
    two = fedseq.run(options, tmp_path / "two", fraction=float(enough))  # without a warning
    assert two.metrics[0]["client_updates"] == 2


@pytest.mark.parametrize(("rounds", "told"), [(400, True), (100, False)])
def test_a_run_of_minutes_says_how_long_it_takes_once_it_knows(rounds, told, monkeypatch, capsys):
    """A first round of 9 s, which warms up, then 2 s each: after the fourth round 396 of 400 are left, 13.2 min."""
    now = 0.0
    monkeypatch.setattr("fedseq.cli.console.time.monotonic", lambda: now)
    reporter = ConsoleReporter(make_console())
    reporter.begin(resolve({"dataset": "digits", "rounds": rounds}), "runs/x", 0)
    for round_ in range(1, 8):
        now = 7.0 + 2.0 * round_
        reporter.round({"round": round_})
    words = "400 rounds of 2 s (Ctrl-C stops the run; fedseq resume goes on): 13.2 min to go\n"
    assert capsys.readouterr().out.count(words) == told


def test_so_does_a_long_stage(monkeypatch, capsys):
    """Ten of 500 clients in 30 s leave 490 at 3 s each: 24.5 min."""
    now = 0.0
    monkeypatch.setattr("fedseq.cli.console.time.monotonic", lambda: now)
    reporter = ConsoleReporter(make_console())
    for done in range(30):
        now = 3.0 * done
        reporter.stage(done, 500, "pre-training, 10 epochs")
    assert capsys.readouterr().out.count("pre-training, 10 epochs: 24.5 min to go\n") == 1


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("--client-dropot", "'--client-dropout'"),  # near
        ("--norm", "'--dp-clip-norm' or '--max-grad-norm'"),  # a part of them
        ("--chain", "'--long-chain-rounds' or '--superclients-per-chain'"),
    ],
)
def test_an_option_that_does_not_exist_names_those_that_are_meant(name, meant, capsys):
    assert main(["run", name, "1"]) == 2
    assert f"unknown option '{name}'. Did you mean {meant}?" in capsys.readouterr().err
