"""Wherever clients are computed, on one machine or over a network with TLS and keys, the bits are the same."""

import json
import os
from collections.abc import Iterator

import pytest

from fedseq import run
from fedseq.using.predict import evaluate_run
from flower.expected import NODES, OPTIONS, checksum, lines, on_one_machine
from flower.federations import Running, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # real processes, and perhaps a busy machine

SOAK = os.environ.get("FEDSEQ_SOAK") == "1"
CASES = [{"algorithm": "fedseq+feddyn+window", "window": 2}] + SOAK * [
    {"algorithm": "fedseq+fedacg+ema", "superclients_per_chain": 2, "rounds": 4},
    {"algorithm": "fedseq+scaffold", "superclient_epochs": 2, "rounds": 4},
    {"algorithm": "fedseqinter+feddyn", "merge_every": 2, "rounds": 4},
    {"algorithm": "fedprox", "client_dropout": 0.3, "rounds": 4},
    {"algorithm": "fedseq+feddyn", "approximator": "classifier-last", "grouping_metric": "cosine", "local_epochs": 2},
]


@pytest.fixture(scope="module")
def fed(tmp_path_factory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("federation") / "fed", NODES, options=OPTIONS) as made:
        yield made


@pytest.mark.parametrize("choices", CASES, ids=lambda choices: choices["algorithm"])
def test_every_place_ends_with_the_same_weights(fed, tmp_path, choices):
    """Serial, two processes, a Ray cluster of two nodes, Flower's simulation, Flower over TLS with registered keys."""
    from ray.cluster_utils import Cluster

    serial = on_one_machine(tmp_path / "serial", **choices)
    options = {**OPTIONS, "num_clients": NODES, "update_check": "size", "checkpoint_every": 1, **choices}
    changes = [f"{name}={value}" for name, value in choices.items()]
    run(options, tmp_path / "processes", engine="processes", workers=2)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        run(options, tmp_path / "ray", engine="ray", ray_address=cluster.address)
    finally:
        cluster.shutdown()
    fed.simulate(f"out={tmp_path / 'simulation'}", *changes)
    fed.run(f"out={tmp_path / 'deployment'}", *changes)
    for name in ("processes", "ray", "simulation", "deployment"):
        assert checksum(tmp_path / name) == checksum(serial), name
        assert lines(tmp_path / name) == lines(serial), name
        assert (tmp_path / name / "superclients.json").read_text() == (serial / "superclients.json").read_text(), name
    deployment = tmp_path / "deployment"
    assert "label_counts" not in json.loads((deployment / "clients.json").read_text())
    assert evaluate_run(deployment)[0].accuracy == lines(serial)[-1]["accuracy"]
