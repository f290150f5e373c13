"""From given options to a complete config: defaults, checks, text, and nothing that has no effect."""

import math
import re

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fedseq.basics.errors import FedSeqError
from fedseq.options.config import OPTIONS, all_options, differences
from fedseq.options.config_files import coerce, read_yaml, refuse_code, to_yaml
from fedseq.options.datasets import CATALOG
from fedseq.options.option import flag
from fedseq.options.resolve import recorded, resolve
from fedseq.options.tables import AVERAGES, LOCAL_RULES, SERVER_RULES, TOPOLOGIES


def test_defaults_of_the_paper():
    config = resolve({"dataset": "cifar10"})
    assert (config.num_clients, config.fraction, config.rounds, config.local_epochs) == (500, 0.2, 200, 1)
    assert (config.lr, config.weight_decay, config.momentum, config.batch_size) == (0.01, 4e-4, 0.0, 64)
    assert (config.approximator, config.grouping, config.pretrain_epochs, config.max_clients) == (
        "confidence", "greedy", 10, 11,
    )  # fmt: skip
    assert (config.model, config.augment, config.grouping_metric) == ("lenet5", "crop-flip", "kl")


@pytest.mark.parametrize("algorithm", ["fedseq", "centralized"])
@pytest.mark.parametrize("name", CATALOG)
def test_a_run_of_defaults_takes_minutes(name, algorithm):
    """Five rounds of the paper visit every picture once, and take about as long as an epoch: some eight seconds."""
    config = resolve({"dataset": name, "algorithm": algorithm})
    visited = CATALOG[name].train * config.rounds * config.fraction
    assert visited <= 2_500_000, "on CIFAR, 50 epochs: seven minutes on two cores"


@pytest.mark.parametrize(
    ("algorithm", "option", "value"),
    [
        ("fedprox", "mu", 0.01),
        ("fedseqinter+fedprox", "mu", 1.0),
        ("feddyn", "alpha_dyn", 0.1),
        ("fedseq+feddyn", "alpha_dyn", 0.1),
        ("fedseqinter+feddyn", "alpha_dyn", 1.0),
        ("fedavgm", "server_lr", 1.0),
        ("fedseq+fedyogi", "server_lr", 0.01),
        ("centralized", "momentum", 0.9),
        ("centralized", "lr_scheduler", "cosine"),
    ],
)
def test_defaults_that_depend_on_the_algorithm(algorithm, option, value):
    assert resolve({"algorithm": algorithm}).options()[option] == value


def test_centralized_is_one_client_with_everything():
    config = resolve({"algorithm": "centralized"})
    assert (config.num_clients, config.fraction, config.local_epochs, config.partition) == (1, 1.0, 1, "iid")


@pytest.mark.parametrize(
    ("given_", "alpha", "partition"),
    [
        ({}, 0.0, "shards"), ({"alpha": 0.2}, 0.2, "dirichlet"), ({"alpha": math.inf}, math.inf, "iid"),
        ({"partition": "iid"}, math.inf, "iid"), ({"partition": "dirichlet", "alpha": 0.3}, 0.3, "dirichlet"),
    ],
)  # fmt: skip
def test_partition_and_alpha_follow_each_other(given_, alpha, partition):
    config = resolve(given_)
    assert (config.alpha, config.partition) == (alpha, partition)


def test_what_is_given_stays():
    chosen = {"lr": 0.5, "rounds": 7, "num_clients": 3, "model": "mlp", "mu": 0.3, "algorithm": "fedseqinter+fedprox"}
    assert chosen.items() <= resolve(chosen).options().items()


@pytest.mark.parametrize("algorithm", ["fedavg", "fedseq+fedprox", "fedseqinter+feddyn", "centralized", "fedadam"])
def test_yaml_round_trip_and_no_option_without_effect(tmp_path, algorithm):
    config = resolve({"algorithm": algorithm, "target_accuracy": 0.5, "data_dir": "some/where"})
    path = tmp_path / "config.yaml"
    path.write_text(to_yaml(config))
    assert recorded(read_yaml(path)) == resolve(read_yaml(path)) == config
    written = set(yaml.safe_load(to_yaml(config)))
    assert written == set(config.options())
    assert ("mu" in written) == ("fedprox" in algorithm)
    assert ("grouping" in written) == ("fedseq" in algorithm)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("rounds", "12", 12), ("rounds", 12, 12), ("rounds", 12.0, 12), ("rounds", None, None), ("alpha", 1, 1.0),
        ("alpha", "inf", math.inf), ("lr", "1e-2", 0.01), ("seed", "null", None),
        ("dataset", "digits", "digits"),
    ],
)  # fmt: skip
def test_values_are_read_in_the_options_type(name, text, value):
    assert coerce(name, text) == value
    assert type(coerce(name, text)) is type(value)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"roundz": 3}, "Did you mean 'rounds'"),
        ({"rounds": "many"}, "--rounds takes a whole number, not 'many'"),
        ({"rounds": 1.5}, "--rounds takes a whole number"),
        ({"rounds": True}, "--rounds takes a whole number"),
        ({"lr": "nan"}, "--lr takes a number"),
        ({"dataset": ["digits"]}, "--dataset takes a text"),
        ({"authors_code": "fedyn"}, "Did you mean 'feddyn'"),
        (
            {"authors_code": "feddyn+confidence"},
            "--authors-code feddyn has no effect in this run: it is for --algorithm feddyn",
        ),
        ({"dataset": "cifar11"}, "Did you mean 'cifar10'"),
        ({"dataset": "npz:"}, "unknown dataset"),
        ({"algorithm": "fedsec"}, "Did you mean 'fedseq'"),
        ({"algorithm": "fedprox+fedseq"}, "is not in the form"),
        ({"algorithm": "fedseq+fedseq"}, "is not in the form"),
        ({"algorithm": "feddyn+fedavgm"}, "server rule of its own"),
        ({"algorithm": ""}, "--algorithm is empty"),
        ({"algorithm": "centralized+ema"}, "centralized has no clients and takes no rules. Use it alone"),
        ({"grouping": "greedi"}, "Did you mean 'greedy'"),
        ({"num_clients": 0}, "--num-clients must be 1 or more"),
        ({"fraction": 0.0}, "--fraction must be"),
        ({"fraction": 1.01}, "--fraction must be"),
        ({"rounds": -1}, "--rounds must be"),
        ({"alpha": -0.5}, "--alpha must be 0 or more"),
        ({"alpha": 0.0, "partition": "dirichlet"}, "needs --alpha > 0"),
        ({"algorithm": "feddyn", "alpha_dyn": 0.0}, "--alpha-dyn must be greater than 0"),
        ({"momentum": 1.0}, "--momentum must be"),
        ({"target_accuracy": 90}, "--target-accuracy must be"),
        ({"algorithm": "scaffold", "scaffold_option": 2, "momentum": 0.9}, "needs plain SGD"),
        ({"device": "tpu"}, "unknown device"),
        ({"algorithm": "fedseq+mine:rule", "rule.keep": "\x1f"}, "the value of 'rule.keep' cannot be read"),
        ({"attack": "scale:much"}, "unknown attack"),
        (
            {"grouping_metric": "kl", "approximator": "classifier-all"},
            "does not fit method 'greedy' on classifier estimates",
        ),
    ],
)
def test_what_cannot_be_run_is_refused(values, words):
    with pytest.raises(FedSeqError, match=words):
        resolve(values)


# --- no option without effect ----------------------------------------------------------------------------------------

RUNS = [
    {"algorithm": algorithm}
    for algorithm in ("centralized", "fedavg", "fedprox", "scaffold", "feddyn", "fedavgm", "fedadam", "fedyogi",
                      "fairavg", "median", "trimmed-mean", "fedseq", "fedseqinter", "fedseq+fedprox", "fedseq+feddyn",
                      "fedseqinter+scaffold+fedavgm", "fedacg", "fedseq+ghbm", "fedseq+fedacg+ema", "window")
] + [
    {"grouping": "random"}, {"grouping": "kmeans"}, {"grouping": "exchange"}, {"approximator": "classifier-last"},
    {"attack": "nan"}, {"update_check": "size"}, {"lr_scheduler": "exponential"},
    {"engine": "serial"}, {"engine": "ray"}, {"engine": "processes"},
    {"partition": "iid"}, {"partition": "shards"},
    {"dp_clip_norm": 1.0, "dp_noise_multiplier": 1.0, "grouping": "random"},
]  # fmt: skip
KINDS = {float: 0.5, int: 2, str: "auto"}
SPECIAL = {
    "num_clients": 20, "scaffold_option": 1, "update_check_factor": 9.0, "update_check": "exemplars",
    "partition": "iid", "lr_scheduler": "linear",
    "grouping": "greedy", "approximator": "confidence", "grouping_metric": "euclidean",
    "authors_code": "confidence", "group_estimate": "half", "dp_mechanism": "round", "dp_source": "system",
}  # fmt: skip
COMPANIONS = {"dp_clip_norm": {"dp_target_epsilon": 8.0}}  # what an option needs beside it
CONDITIONAL = [name for name, found in all_options().items() if found.when.words]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: "-".join(map(str, run.values())))
def test_every_option_is_either_used_or_refused_by_name(run):
    """Every option that not all runs use, given a value of its own, in every kind of run."""
    rows = {**LOCAL_RULES, **SERVER_RULES, **AVERAGES, **TOPOLOGIES}
    parts = [part for part in run.get("algorithm", "fedseq").split("+") if part in rows]
    rules = {parameter.name for part in parts for parameter in rows[part].parameters}
    for name in CONDITIONAL:
        found = all_options()[name]
        chosen = {name: SPECIAL.get(name, KINDS[found.kinds[0]]), **COMPANIONS.get(name, {}), **run}
        used = resolve(chosen, lenient=True).options()
        if used.get(name) == chosen[name]:
            assert resolve(chosen).options() == used, name
        else:
            words = f"{flag(name)} has no effect in this run: it is for {found.when.words}"
            with pytest.raises(FedSeqError, match=words):
                resolve(chosen)
        assert name in OPTIONS or (name in used) == (name in rules), name


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"algorithm": "fedavg", "mu": 0.1}, "--mu has no effect in this run: it is for fedprox"),
        ({"algorithm": "fairavg", "server_lr": 0.1}, "--server-lr has no effect.*fedavgm, fedadam, fedyogi"),
        ({"lr_final": 0.1}, "--lr-final has no effect in this run: it is for --lr-scheduler linear or cosine"),
        ({"grouping": "random", "pretrain_epochs": 3}, "--pretrain-epochs has no effect"),
        ({"algorithm": "fedavg", "superclient_epochs": 3}, "--superclient-epochs has no effect"),
        ({"update_check_factor": 5}, "--update-check-factor has no effect"),
        ({"alpha": 0.5, "partition": "shards"}, "--alpha has no effect"),
        ({"algorithm": "centralized", "num_clients": 10}, "--num-clients has no effect"),
        ({"algorithm": "fedavg", "mu": 0.1, "grouping": "greedy"}, "--grouping has.*; --mu has.*Leave them out"),
    ],
)
def test_an_option_without_effect_is_refused_by_name(values, words):
    with pytest.raises(FedSeqError, match=words):
        resolve(values)


def test_a_saved_option_that_is_not_used_any_more_is_dropped():
    saved = resolve({"engine": "processes", "workers": 2}).options()
    assert resolve({"engine": "serial"}, saved).workers is None
    with pytest.raises(FedSeqError, match="--workers has no effect"):
        resolve({"engine": "serial", "workers": 2}, saved)


def test_a_sweep_drops_what_another_run_uses():
    assert "mu" not in resolve({"algorithm": "fedavg", "mu": 0.1}, lenient=True).options()


def test_differences_are_those_that_change_what_comes_out():
    before = resolve({"algorithm": "fedprox"})
    now = resolve({"algorithm": "fedprox", "mu": 0.5, "rounds": 9, "engine": "serial", "seed": 1})
    assert differences(before, now) == [("seed", 0, 1), ("mu", 0.01, 0.5)]
    central = resolve({"algorithm": "centralized"})
    assert differences(central, resolve({"algorithm": "centralized", "rounds": 3})) == [("rounds", 30, 3)]
    falling = resolve({"lr_scheduler": "linear", "rounds": 9})
    assert differences(falling, resolve({"lr_scheduler": "linear", "rounds": 10})) == [("rounds", 9, 10)]


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(OPTIONS)) | st.text(max_size=6), JUNK, max_size=4))
def test_any_mapping_is_either_a_config_or_a_clear_error(values):
    try:
        config = resolve(values)
    except FedSeqError:
        return
    assert config.rounds >= 1


@pytest.mark.parametrize(
    "content", [b"rounds: [", b"- a\n- b", b"\xff\xfe\x00", b"!!python/object/apply:os.system ['touch owned']", b"1: 2"]
)
def test_files_that_are_not_configs_are_refused_and_not_executed(tmp_path, content):
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)
    with pytest.raises(FedSeqError, match=r"bad\.yaml"):
        read_yaml(path)
    assert not (tmp_path / "owned").exists()


def test_null_takes_a_saved_option_back_to_its_default():
    saved = resolve({"max_grad_norm": 1.0, "lr": 0.5}).options()
    for cleared in (None, "null"):
        config = resolve({"max-grad-norm": cleared}, saved)
        assert (config.max_grad_norm, config.lr) == (None, 0.5)


def test_values_of_an_own_rule_are_numbers_texts_or_lists():
    assert coerce("my.rates", "[0.1, [2, x]]") == (0.1, (2, "x"))
    assert coerce("my.rates", [1, 2]) == (1, 2)
    for table in ("{a: 1}", {"a": 1}, [{"a": 1}]):
        with pytest.raises(FedSeqError, match=r"my\.rates.*Give a number, a text, or a list"):
            coerce("my.rates", table)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"model": "theirs:Net"}, "--model theirs:Net"),
        ({"algorithm": "fedseq+theirs:rule"}, "--algorithm fedseq+theirs:rule"),
        ({"engine": "ray", "ray_address": "ray://evil.example:10001"}, "--ray-address ray://evil.example:10001"),
        ({"track": "wandb"}, "--track wandb"),
        ({"track": "tensorboard+mlflow"}, "--track tensorboard+mlflow"),
    ],
)
def test_a_file_does_not_name_code_or_another_machine_unless_it_is_trusted(options, named):
    with pytest.raises(FedSeqError, match=f"theirs.yaml asks for .*{re.escape(named)}.*--trust"):
        refuse_code(options, "theirs.yaml", (), trust=False)
    refuse_code(options, "theirs.yaml", (), trust=True)
    refuse_code(options, "theirs.yaml", options, trust=False)  # by flags, now


def test_what_stays_on_this_machine_needs_no_trust():
    refuse_code({"track": "tensorboard", "workers": 3, "engine": "processes"}, "theirs.yaml", (), trust=False)
