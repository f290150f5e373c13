"""Clusters that are not there, and one of our own: on loopback only, and gone with the run."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fedseq.api.experiment import resume, run
from fedseq.basics.errors import FedSeqError
from fedseq.options.resolve import resolve
from helpers import files_of, is_running, start, wait_for

from .test_engines import shared_files

pytest.importorskip("ray")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "nobody answers there"),
        ("there", "not in the form HOST:PORT"),
        ("ray://127.0.0.1:10001", "Ray's client"),
    ],
)
def test_a_cluster_that_is_not_there(address: str, message: str) -> None:
    failed = start("run", "--dataset", "digits", "--engine", "ray", "--ray-address", address, "--out", "x")
    output = "".join(failed.communicate())
    assert failed.returncode == 2
    assert message in output
    assert "Traceback" not in output


def test_an_address_is_for_this_engine_only() -> None:
    for engine in (None, "serial", "processes"):
        with pytest.raises(FedSeqError, match="--ray-address has no effect in this run: it is for --engine ray"):
            resolve({"engine": engine, "ray_address": "auto"})
    resolve({"engine": "ray", "ray_address": "auto"})


def test_without_ray_there_is_advice() -> None:
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "import fedseq.engines, fedseq.cli\n"
        "sys.exit(fedseq.cli.main(['run', '--dataset', 'digits', '--engine', 'ray', '--out', 'x']))"
    )
    failed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert failed.returncode == 2, failed.stderr
    assert "pip install '.[ray]'" in failed.stderr


def test_a_cluster_of_our_own_is_closed_to_others_obeys_ctrl_c_and_leaves_nothing(tmp_path: Path) -> None:
    words = ["--dataset", "digits", "--grouping", "random", "--out", "run"]
    started = start("run", *words, "--engine", "ray", "--workers", "2", "--rounds", "100000")
    metrics = Path("run/metrics.jsonl")
    wait_for(lambda: started.poll() is not None or (metrics.exists() and metrics.read_text().count("\n") >= 2))
    family = descendants(started.pid)
    shared = shared_files(family)  # Ray's objects
    listening = [address for pid in family for address in listens_on(pid)]
    assert len(family) >= 5, started.communicate()  # the driver, the head's services, two workers
    assert len(listening) >= 4
    assert all(address in LOOPBACK for address, _ in listening), listening
    (port,) = {port for pid in family if "gcs_server" in command_of(pid) for _, port in listens_on(pid)}
    (session,) = {word for pid in family for word in command_of(pid).split("\0") if word.startswith("--session-dir=")}
    ray_s_own = Path(session.partition("=")[2]).parent  # which Ray opens to everybody, inside of one that is closed
    assert stat.S_IMODE(ray_s_own.parent.stat().st_mode) == 0o700
    (token,) = {token_of(pid) for pid in family if "ray/core" in command_of(pid)}
    assert len(token) == 64
    assert not any(token in command_of(pid) for pid in family)  # which other users may read
    without, wrong, right = (outsider(port, token) for token in ("", "0" * 64, token))
    assert "Authentication token is missing" in without.communicate()[1]
    assert "InvalidAuthToken" in wrong.communicate()[1]
    assert "inside" in right.communicate()[0]
    os.killpg(started.pid, signal.SIGINT)
    output = "".join(started.communicate())
    assert started.returncode == 130, output
    wait_for(lambda: not any(is_running(pid) for pid in family), 30)
    assert not any(path.exists() for path in shared)
    done = metrics.read_text().count("\n")
    resume("run", engine="serial", rounds=done + 1)
    alone = run(dataset="digits", grouping="random", engine="serial", rounds=done + 1, folder="alone")
    assert alone.rounds == done + 1
    assert files_of(Path("run")) == files_of(Path("alone"))


LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


def descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    below = [int(child) for child in children.read_text().split()] if children.exists() else []
    return [pid, *(one for child in below for one in descendants(child))]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def token_of(pid: int) -> str:
    words = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return next(word.partition("=")[2] for word in words if word.startswith("RAY_AUTH_TOKEN="))


def outsider(port: int, token: str) -> "subprocess.Popen[str]":
    """Another driver, which asks the cluster to run a task of its own."""
    code = "import ray, sys; ray.init(sys.argv[1]); print(ray.get(ray.remote(lambda: 'in' + 'side').remote()))"
    environment = {**os.environ, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    if token:
        environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
    words = [sys.executable, "-c", code, f"127.0.0.1:{port}"]
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def listens_on(pid: int) -> list[tuple[str, int]]:
    """Addresses, as the kernel writes them, and ports of the TCP sockets at which the process waits for others."""
    found = []
    sockets = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in sockets:
                address, port = local.split(":")
                found.append((address, int(port, 16)))
    return found
