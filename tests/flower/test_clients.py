"""Clients that attack, and clients with data of their own."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedseq import FedSeqError
from fedseq.data import load_dataset
from fedseq.using.predict import evaluate_run, load_model, predict_run
from flower.expected import NODES, checksum, lines, on_one_machine, use_client
from flower.federations import Running, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # real processes, and perhaps a busy machine

EVIL = {  # what the attacker does in each round
    1: "weights[:1] = float('nan')",
    2: "weights[-1] = float('inf')",
    3: "weights[:] = 1e30",
    4: "weights = weights[:-1]",
    5: "weights = weights.astype('float64')",
    6: "weights = weights[:1]",
    7: "arrays.pop('weights'); weights = None",
    8: "metrics['num-examples'] = -5",
    9: "metrics['num-examples'] = 0",
    10: "weights = numpy.frombuffer(os.urandom(60_000_000), 'uint8')",
    11: "start = message.content['arrays']['start'].numpy(); weights = start + 1000 * (weights - start)",
    12: "raise ValueError('gibberish ' * 100)",
}
REASONS = {
    1: "not finite", 2: "not finite", 3: "not finite",  # the length of a vector of 1e30 is not
    4: "weights is not", 5: "weights has", 6: "weights is not", 7: "missing", 8: "-5 examples", 9: "0 examples",
    10: "its answer was too large, or was cut off", 11: "more than", 12: "its app failed: ",
}  # fmt: skip
ATTACKER = 1


def test_answers_of_an_attacker_are_refused_by_name_and_the_run_goes_on(fed: Running, tmp_path: Path) -> None:
    """NaN, inf, 1e30, wrong shape, wrong type, a shape that would broadcast, a missing key, no or negative examples,
    60 MB of rubbish, a step a thousand times too long, an app that fails: none of it changes a bit of the
    model, nothing large is stored, and each is told."""
    cases = "".join(f"    if job['round'] == {round_}: {code}\n" for round_, code in EVIL.items())
    evil = (
        f"    if client != {ATTACKER} or job['purpose'] != 'train': return inner(message, context)\n"
        "    import numpy\n"
        "    from flwr.app import Array\n"
        "    answer = inner(message, context)\n"
        "    arrays, metrics = (answer.content[name] for name in ('arrays', 'metrics'))\n"
        "    weights = arrays['weights'].numpy().copy()\n"
        f"{cases}"
        "    if weights is not None: arrays['weights'] = Array(weights)\n"
        "    return answer\n"
    )
    choices: dict[str, Any] = {"algorithm": "fedseq", "grouping": "random", "rounds": len(EVIL)}
    use_client(fed, evil)
    stored_before = stored(fed)
    output = fed.run("out=attacked", *(f"{name}={value}" for name, value in choices.items()))
    assert stored(fed) - stored_before < 20_000_000
    for record in lines(fed.folder / "attacked"):
        [hop] = record["skipped"]
        assert hop["client"] == ATTACKER
        assert REASONS[record["round"]] in hop["reason"]
        assert len(hop["reason"]) < 300
        assert f"skipped client {ATTACKER} of unit {hop['unit']}: {hop['reason']}" in output
        assert record["client_updates"] == NODES - 1
    refused = [(round_, ATTACKER) for round_ in EVIL]
    expected = on_one_machine(tmp_path / "expected", missing=refused, **choices)
    assert checksum(fed.folder / "attacked") == checksum(expected)


def stored(fed: Running) -> int:
    return sum(file.stat().st_size for file in (fed.folder / "superlink").rglob("*") if file.is_file())


def test_clients_with_files_of_their_own(tmp_path):
    """Two nodes with an npz file each; the server has a test set and learns neither examples nor labels."""
    digits = load_dataset("digits")
    halves = np.array_split(np.random.default_rng(0).permutation(len(digits.y_train)), 2)
    for node, half in enumerate(halves):
        np.savez(tmp_path / f"node-{node}.npz", x=digits.x_train[half], y=digits.y_train[half])
    np.savez(tmp_path / "server.npz", x=digits.x_test, y=digits.y_test)
    with running(
        tmp_path / "fed", 2, options={"algorithm": "fedseq", "rounds": 2, "fraction": 1.0, "lr": 0.03, "exemplars": 5},
        server_data=f"npz:{tmp_path / 'server.npz'}", insecure=True, own_data=True,
        node_data=f"npz:{tmp_path}/node-{{node}}.npz",
    ) as fed:  # fmt: skip
        fed.run()
        clients = json.loads((fed.folder / "run" / "clients.json").read_text())
        assert clients["examples"] == [len(half) for half in halves]
        assert "label_counts" not in clients
        assert [record["client_updates"] for record in lines(fed.folder / "run")] == [2, 2]
        trained = fed.folder / "run"
    # The model can be used where the clients' data is not, with the classes and pictures of the server's file.
    assert evaluate_run(trained)[0].accuracy == lines(trained)[-1]["accuracy"]
    assert load_model(trained)
    np.save(tmp_path / "new.npy", digits.x_test[:3])
    found = predict_run(trained, tmp_path / "new.npy")
    assert [row.class_name in "0123456789" for row in found] == [True] * 3
    np.savez(tmp_path / "server.npz", x=digits.x_train, y=digits.y_train)
    with pytest.raises(FedSeqError, match="was run on other data"):
        evaluate_run(trained)
