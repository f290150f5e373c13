"""Wherever clients are computed, on one machine or over a network with TLS and keys, the bits are the same."""

import json
import os

import pytest

from fedseq import run
from fedseq.using.predict import evaluate_run
from flower.expected import NODES, OPTIONS, checksum, lines, on_one_machine
from flower.federations import Running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # real processes, and perhaps a busy machine

SOAK = os.environ.get("FEDSEQ_SOAK") == "1"
CASES = [{"algorithm": "fedseq+feddyn+window", "window": 2}] + SOAK * [
    {"algorithm": "fedseq+fedacg+ema", "superclients_per_chain": 2, "rounds": 4},
    {"algorithm": "fedseq+scaffold", "superclient_epochs": 2, "rounds": 4},
    {"algorithm": "fedseqinter+feddyn", "merge_every": 2, "rounds": 4},
    {"algorithm": "fedprox", "client_dropout": 0.3, "rounds": 4},
    {"algorithm": "fedseq+feddyn", "approximator": "classifier-last", "grouping_metric": "cosine", "local_epochs": 2},
]


@pytest.mark.parametrize("choices", CASES, ids=lambda choices: choices["algorithm"])
def test_every_place_ends_with_the_same_weights(fed: Running, tmp_path, choices):
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
    simulation, deployment = (fed.folder / f"{name}-{tmp_path.name}" for name in ("simulated", "deployed"))
    fed.simulate(f"out={simulation.name}", *changes)
    fed.run(f"out={deployment.name}", *changes)
    for place in (tmp_path / "processes", tmp_path / "ray", simulation, deployment):
        assert checksum(place) == checksum(serial), place
        assert lines(place) == lines(serial), place
        assert (place / "superclients.json").read_text() == (serial / "superclients.json").read_text(), place
    assert "label_counts" not in json.loads((deployment / "clients.json").read_text())
    assert evaluate_run(deployment)[0].accuracy == lines(serial)[-1]["accuracy"]
