"""Clients that attack, and clients with data of their own."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fedseq.config import Config
from fedseq.data import load_dataset
from fedseq.flower.settings import Settings
from flower.expected import CONFIG, checksum, lines, on_one_machine, use_client
from flower.federations import running

pytestmark = pytest.mark.timeout(900)  # real processes, and perhaps a busy machine

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
