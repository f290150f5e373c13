"""Private visits over real processes: noise from the cryptographic source, and a budget that outlives servers."""

import json
import math
import os
import signal
import threading
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fedseq.basics.errors import FedSeqError
from fedseq.privacy.gaussian import epsilon_of
from fedseq.runs.reading import read_run
from flower.expected import lines, use_client
from flower.federations import running
from flower.test_killed_server import server_process

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),  # real processes, and perhaps a busy machine
    pytest.mark.skipif(os.environ.get("FEDSEQ_SOAK") != "1", reason="long: make soak"),
]

NOISE, CLIP = 2.0, 0.5
BUDGET = 1.01 * epsilon_of(math.sqrt(2) / NOISE, 1e-5)  # two visits to each client, not three
OPTIONS = {
    "dataset": "digits",
    "algorithm": "fedseq",
    "grouping": "random",
    "min_samples": 1000,
    "fraction": 1.0,
    "rounds": 9,
    "exemplars": 5,
    "update_check": "none",
    "dp_clip_norm": CLIP,
    "dp_noise_multiplier": NOISE,
    "dp_target_epsilon": BUDGET,
}  # fmt: skip - one superclient of two clients

# The first client of round 2 has trained, and its answer waits: then the server is killed.
HOLD_ROUND_2 = """
    if place[:2] == ("train", 2):
        import time
        answer = inner(message, context)
        Path({asked!r}).touch()
        while not Path({killed!r}).exists():
            time.sleep(0.05)
        return answer
"""


def test_a_killed_server_gets_no_more_out_of_private_clients_than_the_budget(tmp_path: Path) -> None:
    out, asked, killed = tmp_path / "fed" / "out", tmp_path / "asked", tmp_path / "killed"
    threading.Thread(target=kill_server_when, args=(out, asked, killed), daemon=True).start()
    with running(tmp_path / "fed", 2, options=OPTIONS, insecure=True) as fed:
        use_client(fed, HOLD_ROUND_2.format(asked=str(asked), killed=str(killed)))
        with pytest.raises(FedSeqError, match="did not complete"):
            fed.run("out=out")
        # Round 2 was never written down, but both clients were about to be asked for it: what is left is nothing.
        assert json.loads((out / "privacy.json").read_text()) == {"visits": [2, 2]}
        assert "finished after 1 rounds of 9: the privacy budget allows no more" in fed.run("out=out")
        accounts = sorted(json.loads(file.read_text())["mu2"] * NOISE**2 for file in fed.folder.rglob("privacy-?.json"))
        assert accounts == [1.0, 2.0]  # the second client of the chain was never reached in round 2
        # A server that forgets everything is refused by the client that has spent its budget, and by the other in turn.
        fed.run("out=again", "rounds=2")
        told = [sorted(hop["reason"] for hop in line["skipped"]) for line in lines(fed.folder / "again")]
        assert [len(reasons) for reasons in told] == [1, 2]
        assert all("is spent" in reason for reasons in told for reason in reasons)
    run = read_run(out)
    assert run.config.dp_source == "system"
    assert [line["epsilon"] for line in run.metrics] == [pytest.approx(epsilon_of(1 / NOISE, 1e-5))]
    # A chain of two adds two noises of z C = 1 to weights that are a tenth as large: their deviation is sqrt(2).
    weights = torch.cat([tensor.flatten() for tensor in load_file(out / "weights.safetensors").values()])
    assert float(weights.std()) == pytest.approx(math.sqrt(2), rel=0.04)


def kill_server_when(out: Path, asked: Path, killed: Path) -> None:
    while not asked.exists():
        time.sleep(0.05)
    os.kill(server_process(out), signal.SIGKILL)
    killed.touch()
