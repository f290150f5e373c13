import dataclasses
import math

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fedseq.config import FIELDS, Config, check, resolve
from fedseq.configfile import coerce, from_mapping, read_yaml, to_yaml
from fedseq.errors import FedSeqError


def test_defaults_of_the_paper():
    config = resolve(Config(dataset="cifar10"))
    assert (config.num_clients, config.fraction, config.rounds, config.client_epochs) == (500, 0.2, 10_000, 1)
    assert (config.lr, config.weight_decay, config.momentum, config.batch_size) == (0.01, 4e-4, 0.0, 64)
    assert (config.approximator, config.method, config.pretrain_epochs, config.max_clients) == (
        "confidence", "greedy", 10, 11,
    )  # fmt: skip
    assert (config.model, config.augment) == ("lenet5", "crop-flip")
    assert resolve(Config(dataset="cifar100")).rounds == 20_000


@pytest.mark.parametrize(
    ("algorithm", "option", "value"),
    [
        ("fedprox", "mu", 0.01),
        ("fedseqinter+fedprox", "mu", 1.0),
        ("feddyn", "alpha_dyn", 0.1),
        ("fedseq+feddyn", "alpha_dyn", 0.1),
        ("fedseqinter+feddyn", "alpha_dyn", 1.0),
        ("centralized", "momentum", 0.9),
        ("centralized", "lr_schedule", "cosine"),
        ("centralized", "num_clients", 1),
    ],
)
def test_defaults_that_depend_on_the_algorithm(algorithm, option, value):
    assert getattr(resolve(Config(algorithm=algorithm)), option) == value


@pytest.mark.parametrize(("alpha", "partition"), [(0.0, "shards"), (0.2, "hsu"), (math.inf, "iid")])
def test_partition_follows_alpha(alpha, partition):
    assert resolve(Config(alpha=alpha)).partition == partition


def test_what_is_given_stays():
    given = Config(lr=0.5, rounds=7, num_clients=3, model="mlp", mu=0.3, algorithm="fedseqinter+fedprox")
    resolved = resolve(given)
    assert all(
        getattr(resolved, name) == getattr(given, name) for name in ("lr", "rounds", "num_clients", "model", "mu")
    )


def test_yaml_round_trip(tmp_path):
    config = resolve(Config(alpha=math.inf, until_accuracy=0.5, data_dir="some/where"))
    path = tmp_path / "config.yaml"
    path.write_text(to_yaml(config))
    assert from_mapping(read_yaml(path)) == config
    assert set(yaml.safe_load(to_yaml(config))) == set(FIELDS)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("rounds", "12", 12), ("rounds", 12, 12), ("rounds", 12.0, 12), ("rounds", None, None), ("alpha", 1, 1.0),
        ("alpha", "inf", math.inf), ("lr", "1e-2", 0.01), ("feddyn_official", "true", True),
        ("dataset", "digits", "digits"),
    ],
)  # fmt: skip
def test_values_are_read_in_the_fields_type(name, text, value):
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
        ({"feddyn_official": "maybe"}, "true or false"),
        ({"seed": None}, "--seed takes a whole number"),
    ],
)
def test_unreadable_values_are_refused(values, words):
    with pytest.raises(FedSeqError, match=words):
        from_mapping(values)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"dataset": "cifar11"}, "Did you mean 'cifar10'"),
        ({"dataset": "npz:"}, "unknown dataset"),
        ({"algorithm": "fedsec"}, "Did you mean 'fedseq'"),
        ({"algorithm": "fedprox+fedseq"}, "is not in the form"),
        ({"algorithm": "fedseq+fedseq"}, "is not in the form"),
        ({"algorithm": "feddyn+fedavgm"}, "server rule of its own"),
        ({"algorithm": ""}, "unknown algorithm"),
        ({"method": "greedi"}, "Did you mean 'greedy'"),
        ({"num_clients": 0}, "--num-clients must be 1 or more"),
        ({"fraction": 0.0}, "--fraction must be"),
        ({"fraction": 1.01}, "--fraction must be"),
        ({"rounds": -1}, "--rounds must be"),
        ({"alpha": -0.5}, "--alpha must be 0 or more"),
        ({"alpha": 0.0, "partition": "hsu"}, "needs --alpha > 0"),
        ({"alpha_dyn": 0.0}, "--alpha-dyn must be greater than 0"),
        ({"momentum": 1.0}, "--momentum must be"),
        ({"until_accuracy": 90}, "--until-accuracy must be"),
        ({"algorithm": "scaffold", "scaffold_option": 2, "momentum": 0.9}, "needs plain SGD"),
        ({"device": "tpu"}, "unknown device"),
    ],
)
def test_what_cannot_be_run_is_refused(values, words):
    with pytest.raises(FedSeqError, match=words):
        check(dataclasses.replace(Config(), **values))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=400, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(FIELDS)) | st.text(max_size=6), JUNK, max_size=4))
def test_any_mapping_is_either_a_config_or_a_clear_error(values):
    try:
        config = resolve(from_mapping(values))
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
