"""The federation itself, over real processes on loopback with TLS and keys: the same bits, whatever happens to it."""

import hashlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedseq import run
from fedseq.config import Config, resolve
from fedseq.data import load_dataset
from fedseq.engines import SerialEngine
from fedseq.errors import FedSeqError
from fedseq.experiment import execute
from fedseq.flower.settings import Settings
from fedseq.jobs import Job, Result
from fedseq.parts import named_parts
from fedseq.progress import QUIET
from flower.federations import Running, running

NODES = 4
CONFIG = Config(
    dataset="digits", algorithm="fedseq+feddyn", rounds=2, fraction=1.0, min_samples=700, pretrain_epochs=1, exemplars=5
)  # two superclients of two clients
RANDOM = ("method=random",)  # no pre-training, which the first test covers
SOAK = os.environ.get("FEDSEQ_SOAK") == "1"
CASES = [{"algorithm": "fedseq+feddyn"}] + SOAK * [
    {"algorithm": "fedseq+scaffold", "superclient_epochs": 2, "rounds": 4},
    {"algorithm": "fedseqinter+feddyn", "merge_every": 2, "rounds": 4},
    {"algorithm": "fedprox", "dropout": 0.3, "rounds": 4},
    {"algorithm": "fedseq+feddyn", "approximator": "classifier-last", "metric": "cosine", "client_epochs": 2},
]

WRAPPED_CLIENT = """
import json, os, signal
from pathlib import Path

from flwr.clientapp import ClientApp
from fedseq.flower.client import make_client_app

inner = make_client_app()
app = ClientApp()


@app.query("hello")
def hello(message, context):
    return inner(message, context)


@app.train()
def train(message, context):
    job = message.content.config_records["job"]
    client, place = job["client"], (job["purpose"], job["round"], job["client"])
"""


def checksum(folder: Path) -> str:
    return hashlib.sha256((folder / "weights.safetensors").read_bytes()).hexdigest()


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


class WithoutHops(SerialEngine):
    """One machine on which these (round, client) never answer."""

    missing: Sequence[tuple[int, int]] = ()

    def run(self, jobs: Sequence[Job]) -> Iterator[Result]:
        def left(job: Job) -> tuple:
            return tuple(hop for hop in job.hops if job.purpose != "train" or (job.round, hop[0]) not in self.missing)

        return super().run([replace(job, hops=left(job)) for job in jobs])


def on_one_machine(
    folder: Path, missing: Sequence[tuple[int, int]] = (), nodes: int = NODES, **options: object
) -> Path:
    config = replace(CONFIG, num_clients=nodes, gate=True, checkpoint_every=1, engine="serial", **options)  # type: ignore[arg-type]

    def engine(_: Config, task: object) -> WithoutHops:
        made = WithoutHops(task)  # type: ignore[arg-type]
        made.missing = missing
        return made

    folder.mkdir()
    execute(named_parts(resolve(config), QUIET), folder, make_engine=engine)
    return folder


@pytest.fixture(scope="module")
def fed(tmp_path_factory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("federation") / "fed", NODES, config=CONFIG) as made:
        yield made


def use_client(fed: Running, lines: str) -> None:
    (fed.folder / "app" / "client_app.py").write_text(WRAPPED_CLIENT + lines + "    return inner(message, context)\n")


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
    assert "label_counts" not in json.loads((tmp_path / "deployment" / "clients.json").read_text())


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
    fed.run(*RANDOM, f"out={out}", "hop-deadline=20")
    record = lines(out)[1]
    assert [hop["client"] for hop in record["skipped"]] == [2]
    assert record["client_updates"] == NODES - 1
    expected = on_one_machine(tmp_path / "expected", missing=[(2, 2)], method="random")
    assert checksum(out) == checksum(expected)

    use_client(fed, "")
    fed.start(2)
    fed.run(*RANDOM, f"out={out}", "hop-deadline=60", "rounds=3")
    assert lines(out)[2]["skipped"] == []
    # FedDyn's memory of client 2 is that of round 1: it was on its disk, and round 2 never counted.
    expected = on_one_machine(tmp_path / "longer", missing=[(2, 2)], method="random", rounds=3)
    assert checksum(out) == checksum(expected)


def test_a_killed_server_continues_from_its_last_checkpoint(fed, tmp_path):
    out = tmp_path / "out"
    killed = threading.Thread(target=kill_server_after_a_round, args=(out,), daemon=True)
    killed.start()
    with pytest.raises(FedSeqError, match="did not complete"):
        fed.run(*RANDOM, f"out={out}", "rounds=3")
    killed.join()
    done = len(lines(out))
    assert 1 <= done < 3
    output = fed.run(*RANDOM, f"out={out}", "rounds=3")
    assert f"rounds {done + 1} to 3" in output or f"rounds {done} to 3" in output  # the last line may be unsaved yet
    assert [record["round"] for record in lines(out)] == [1, 2, 3]
    assert checksum(out) == checksum(on_one_machine(tmp_path / "expected", method="random", rounds=3))


def kill_server_after_a_round(out: Path) -> None:
    while not (out / "metrics.jsonl").exists() or not (out / "metrics.jsonl").read_text().endswith("\n"):
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


EVIL = {
    2: "weights[:1] = float('nan')",
    3: "weights[-1] = float('inf')",
    4: "weights[:] = 1e30",
    5: "weights = weights[:-1]",
    6: "weights = weights.astype('float64')",
    7: "weights = weights[:1]",
    8: "arrays.pop('weights'); weights = None",
    9: "metrics['num-examples'] = -5",
    10: "metrics['num-examples'] = 0",
    11: "weights = numpy.frombuffer(os.urandom(50_000_000), 'uint8')",
    12: "start = message.content['arrays']['start'].numpy(); weights = start + 1000 * (weights - start)",
}


def test_answers_of_attackers_are_refused_by_name_and_the_run_goes_on(tmp_path):
    """NaN, inf, 1e30, wrong shape, wrong type, a shape that would broadcast, a missing key, no or negative examples,
    50 MB of rubbish, a step a thousand times too long: none of it changes a bit of the model."""
    cases = "".join(f"    if client == {client}: {code}\n" for client, code in EVIL.items())
    evil = (
        "    if client < 2: return inner(message, context)\n"
        "    import numpy\n"
        "    from flwr.app import Array\n"
        "    answer = inner(message, context)\n"
        "    arrays, metrics = (answer.content[name] for name in ('arrays', 'metrics'))\n"
        "    weights = arrays['weights'].numpy()\n"
        f"{cases}"
        "    if weights is not None: arrays['weights'] = Array(weights)\n"
        "    return answer\n"
    )
    nodes = 2 + len(EVIL)
    config = replace(CONFIG, algorithm="fedseq", method="random", min_samples=350)
    with running(tmp_path / "fed", nodes, config=config, start=False) as fed:
        use_client(fed, evil)
        fed.simulate(f"out={tmp_path / 'out'}")
    records = lines(tmp_path / "out")
    for record in records:
        assert {hop["client"] for hop in record["skipped"]} == set(EVIL)
        assert record["client_updates"] == 2
    reasons = {hop["client"]: hop["reason"] for hop in records[0]["skipped"]}
    assert reasons[2] == reasons[3] == reasons[4] == "not finite"  # the length of a vector of 1e30 is not
    assert "more than" in reasons[12]
    assert "missing" in reasons[8]
    assert "50000128 bytes" in reasons[11]
    assert "-5 examples" in reasons[9]
    assert "0 examples" in reasons[10]
    refused = [(round_, client) for round_ in (1, 2) for client in EVIL]
    expected = on_one_machine(
        tmp_path / "expected", missing=refused, nodes=nodes, algorithm="fedseq", method="random", min_samples=350
    )
    assert checksum(tmp_path / "out") == checksum(expected)


def test_clients_with_files_of_their_own(tmp_path):
    """Two nodes with an npz file each; the server has a test set and learns neither examples nor labels."""
    digits = load_dataset("digits")
    halves = np.array_split(np.random.default_rng(0).permutation(len(digits.y_train)), 2)
    for node, half in enumerate(halves):
        np.savez(tmp_path / f"node-{node}.npz", x=digits.x_train[half], y=digits.y_train[half])
    np.savez(tmp_path / "server.npz", x=digits.x_test, y=digits.y_test)
    with running(
        tmp_path / "fed", 2, config=Config(algorithm="fedseq", rounds=2, fraction=1.0, lr=0.03, exemplars=5),
        settings=Settings(server_data=f"npz:{tmp_path / 'server.npz'}"), insecure=True, own_data=True,
        node_data=f"npz:{tmp_path}/node-{{node}}.npz",
    ) as fed:  # fmt: skip
        fed.run()
        clients = json.loads((fed.folder / "run" / "clients.json").read_text())
        assert clients["examples"] == [len(half) for half in halves]
        assert "label_counts" not in clients
        assert [record["client_updates"] for record in lines(fed.folder / "run")] == [2, 2]
        assert (fed.folder / "run" / "weights.safetensors").exists()
