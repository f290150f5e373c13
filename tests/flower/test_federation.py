"""The federation itself, over real processes on loopback with TLS and keys: the same bits, whatever happens to it."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedseq import run
from fedseq.errors import FedSeqError
from fedseq.trained import evaluate_run
from flower.expected import CONFIG, NODES, checksum, lines, on_one_machine, use_client
from flower.federations import Running, running

BRIEF = ("method=random", "gate=false")  # neither pre-training nor calibration, which the first test covers
SOAK = os.environ.get("FEDSEQ_SOAK") == "1"
CASES = [{"algorithm": "fedseq+feddyn"}] + SOAK * [
    {"algorithm": "fedseq+scaffold", "superclient_epochs": 2, "rounds": 4},
    {"algorithm": "fedseqinter+feddyn", "merge_every": 2, "rounds": 4},
    {"algorithm": "fedprox", "dropout": 0.3, "rounds": 4},
    {"algorithm": "fedseq+feddyn", "approximator": "classifier-last", "metric": "cosine", "client_epochs": 2},
]


@pytest.fixture(scope="module")
def fed(tmp_path_factory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("federation") / "fed", NODES, config=CONFIG) as made:
        yield made


@pytest.fixture(autouse=True)
def _own_client(request) -> Iterator[None]:
    """Whatever a test put around the client is gone in the next one."""
    yield
    if "fed" in request.fixturenames:
        use_client(request.getfixturevalue("fed"), "")


@pytest.mark.parametrize("choices", CASES, ids=lambda choices: choices["algorithm"])
def test_every_place_ends_with_the_same_weights(fed, tmp_path, choices):
    """Serial, two processes, a Ray cluster of two nodes, Flower's simulation, Flower over TLS with registered keys."""
    from ray.cluster_utils import Cluster

    serial = on_one_machine(tmp_path / "serial", **choices)
    options = {**vars(CONFIG), "num_clients": NODES, "gate": True, "checkpoint_every": 1, **choices}
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


def test_a_node_killed_in_a_chain_is_passed_over_and_used_again_when_it_is_back(fed, tmp_path):
    """Client 2's node dies by SIGKILL in the midst of its visit in round 2; it is back for round 3."""
    processes = fed.folder / "processes.json"
    use_client(
        fed,
        '    if place == ("train", 2, 2):\n'
        f'        os.kill(json.loads(Path({str(processes)!r}).read_text())["node-2"]["pid"], signal.SIGKILL)\n'
        "        os._exit(1)\n",
    )
    out = tmp_path / "out"
    fed.run(*BRIEF, f"out={out}", "hop-deadline=20")
    record = lines(out)[1]
    assert [hop["client"] for hop in record["skipped"]] == [2]
    assert record["client_updates"] == NODES - 1
    expected = on_one_machine(tmp_path / "expected", missing=[(2, 2)], method="random", gate=False)
    assert checksum(out) == checksum(expected)

    use_client(fed, "")
    fed.start(2)
    fed.run(*BRIEF, f"out={out}", "hop-deadline=60", "rounds=3")
    assert lines(out)[2]["skipped"] == []
    # FedDyn's memory of client 2 is that of round 1: it was on its disk, and round 2 never counted.
    expected = on_one_machine(tmp_path / "longer", missing=[(2, 2)], method="random", gate=False, rounds=3)
    assert checksum(out) == checksum(expected)


def test_a_killed_server_continues_from_its_last_checkpoint(fed, tmp_path):
    out = tmp_path / "out"
    killed = threading.Thread(target=kill_server_after_a_round, args=(out,), daemon=True)
    killed.start()
    with pytest.raises(FedSeqError, match="did not complete"):
        fed.run(*BRIEF, f"out={out}")
    killed.join()
    assert [record["round"] for record in lines(out)] == [1]
    assert "rounds 2 to 2" in fed.run(*BRIEF, f"out={out}")
    assert [record["round"] for record in lines(out)] == [1, 2]
    assert checksum(out) == checksum(on_one_machine(tmp_path / "expected", method="random", gate=False))


def kill_server_after_a_round(out: Path) -> None:
    while not (out / "checkpoints" / "000001.json").exists():
        time.sleep(0.05)
    os.kill(server_process(out), signal.SIGKILL)


def server_process(out: Path) -> int:
    """The process that holds the run folder's lock."""
    for place in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if place.readlink().parent == out:
                return int(place.parts[2])
        except OSError:
            continue
    raise AssertionError("no process has the run folder open")
