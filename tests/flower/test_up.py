"""Real processes on loopback: what is started, who is let in, and that ending leaves nothing behind."""

import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

from fedseq.basics.errors import FedSeqError
from fedseq.cli import main
from fedseq.flower import app_run, children, federation_folder, registration, up
from fedseq.flower.children import Child
from fedseq.flower.federation_folder import Federation
from fedseq.flower.up import Deployment

from .federations import Running, free_ports, make, running, use_echo_app

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # real processes, and perhaps a busy machine

LONG = 200.0


def family(fed: Running) -> list[psutil.Process]:
    return [process for child in fed.deployment.children.values() for process in child.family()]


def listening(numbers):
    """Addresses on which these processes listen, as the kernel tells."""
    wanted = {target for pid in numbers for file in Path(f"/proc/{pid}/fd").iterdir() if (target := _target(file))}
    found = set()
    for table, form in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in wanted:
                address, port = fields[1].split(":")
                raw = b"".join(bytes.fromhex(address[i : i + 8])[::-1] for i in range(0, len(address), 8))
                found.add((socket.inet_ntop(form, raw), int(port, 16)))
    return found


def _target(file):
    try:
        return str(file.readlink())
    except OSError:  # closed meanwhile
        return ""


def ask(federation, path, headers):
    """The status that the SuperLink answers to a request from this machine."""
    trust = ssl.create_default_context(cafile=federation.certificates / "ca.crt")
    request = urllib.request.Request(f"https://127.0.0.1:{federation.port}{path}", b"", headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust))
    try:
        return opener.open(request, timeout=30).status
    except urllib.error.HTTPError as error:
        return error.code


def home_of(process):
    try:
        return process.environ().get("FLWR_HOME", "")
    except (psutil.Error, OSError):  # ended, or another user's
        return ""


def working_for(federation: Federation) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter()
        if home_of(process).startswith(str(federation.folder)) and process.status() != psutil.STATUS_ZOMBIE
    ]


def test_everything_listens_on_loopback_only(fed: Running) -> None:
    found = listening(process.pid for process in family(fed))
    assert len({port for _, port in found}) == 5  # the SuperLink and four nodes
    assert {address for address, _ in found} == {"127.0.0.1"}


def test_strangers_are_refused(fed: Running, tmp_path: Path) -> None:
    other, federation = federation_folder.init(tmp_path / "other", 1), fed.federation
    registration.make_missing_keys(other, [0])
    authority, key = "--root-certificates", "--auth-supernode-private-key"
    ours, own_key = str(federation.certificates / "ca.crt"), str(federation.node_key(1))
    strangers = {
        "no TLS": ["--insecure"],
        "another authority": [authority, str(other.certificates / "ca.crt"), key, own_key],
        "a key that is not registered": [authority, ours, key, str(other.node_key(0))],
        "no key": [authority, ours],
    }
    before = fed.log("superlink").count("Activated node_id")
    first = free_ports(10)
    command = ["flower-supernode", "--superlink", f"127.0.0.1:{federation.port}", "--host", "127.0.0.1"]
    tried = {}
    for number, (name, words) in enumerate(strangers.items()):
        words = [*command, "--port", str(first + number), "--max-retries", "1", *words]
        tried[name] = Child(words, children.environment(tmp_path), tmp_path, tmp_path / f"{name}.log")
    try:
        assert children.wait_until(lambda: not any(child.alive for child in tried.values()), LONG)
    finally:
        for child in tried.values():
            child.kill()
    for name, child in tried.items():
        assert child.says(b"Exit Code: 305"), name
        assert not child.says(children.ONLINE), name
    assert tried["another authority"].says(b"CERTIFICATE_VERIFY_FAILED")
    assert fed.log("superlink").count("Activated node_id") == before


def test_a_certificate_of_another_authority_is_not_our_superlink(fed: Running, tmp_path: Path) -> None:
    other = federation_folder.init(tmp_path / "other", 1, port=fed.federation.port)
    assert children.answers(fed.federation, fed.federation.port)
    assert not children.answers(other, other.port)
    deployment = Deployment(other, None, print)
    with pytest.raises(FedSeqError, match=f"port {other.port} is taken"):
        deployment.start()
    assert deployment.children == {}


def test_another_machine_can_neither_register_a_key_nor_start_a_run(fed: Running) -> None:
    """A proxy on this machine says for whom it asks; the SuperLink takes that for the caller."""
    for path in ("/v1/control/start-run", "/v1/control/register-node", "/v1/runtime/acquire-task", "/docs"):
        assert ask(fed.federation, path, {"X-Forwarded-For": "10.0.0.7"}) == 403
        assert ask(fed.federation, path, {}) != 403
    assert ask(fed.federation, "/v1/fleet/pull-messages", {"X-Forwarded-For": "10.0.0.7"}) != 403


def test_a_run_that_failed_is_told(fed: Running, capfd: pytest.CaptureFixture[str]) -> None:
    use_echo_app(fed.federation)
    assert main(["federation", "run", str(fed.folder), "--set", "rounds=13"]) == 2
    told = capfd.readouterr()
    answers = [line for line in told.out.splitlines() if line.startswith("answer of partition")]
    assert sorted(answers) == [f"answer of partition {node}" for node in range(4)]
    assert "rounds 13" in told.out
    assert "did not complete: finished:failed. ServerApp failed with exception: thirteen rounds" in told.err


def test_a_run_under_way_is_shown_and_can_be_stopped(fed: Running, capsys: pytest.CaptureFixture[str]) -> None:
    use_echo_app(fed.federation)
    ended = []

    def follow() -> None:
        try:
            fed.run("rounds=99")  # never ends by itself
        except FedSeqError as error:
            ended.append(str(error))

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    home = fed.folder / "flwr"
    assert children.wait_until(lambda: any(run["status"] == "running" for run in app_run.listed(home)), LONG)
    assert main(["federation", "status", str(fed.folder)]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"(?m)^run \d+: running$", shown)
    assert re.findall(r"(?m)^(\S+) +online$", shown) == ["superlink", "node-0", "node-1", "node-2", "node-3"]
    assert main(["federation", "stop", str(fed.folder)]) == 0
    assert "stopped: run" in capsys.readouterr().out
    follower.join(LONG)
    assert len(ended) == 1
    assert "did not complete: finished:stopped" in ended[0]
    assert main(["federation", "stop", str(fed.folder)]) == 0
    assert "no run was under way" in capsys.readouterr().out


def test_a_node_whose_key_is_damaged_ends_the_start_and_what_was_started(tmp_path: Path) -> None:
    federation = make(tmp_path / "fed", 1)
    registration.make_missing_keys(federation, [0])
    federation.node_key(0).write_text("no key")
    words = [sys.executable, "-m", "fedseq", "federation", "up", str(federation.folder)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=LONG)
    assert ended.returncode == 2
    assert re.search(r"(?s)node 0 was not let in.*Unable to parse the private key", ended.stderr)
    assert children.wait_until(lambda: not working_for(federation), LONG)


def test_own_data_needs_to_know_where_it_is(tmp_path):
    np.savez("test.npz", x=np.zeros((4, 3), np.float32), y=np.arange(4) % 2)
    federation = make(tmp_path / "fed", 2, own_data=True, server_data="npz:test.npz")
    with pytest.raises(FedSeqError, match="--node-data"):
        Deployment(federation, None, print)


def test_a_simulation_leaves_nothing_behind(tmp_path: Path) -> None:
    with running(tmp_path / "fed", 2, echo=True, start=False) as fed:
        assert "rounds 3" in fed.simulate("rounds=3")
        assert children.wait_until(lambda: not working_for(fed.federation), LONG)


@contextmanager
def in_the_foreground(
    federation: Federation, *words: str
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], str]]]:
    """`fedseq federation up`, as a user starts it, and what it has said."""
    said = federation.folder.with_name("said")
    command = [sys.executable, "-m", "fedseq", "federation", "up", str(federation.folder), *words]
    with said.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        assert children.wait_until(lambda: up.READY in said.read_text() or process.poll() is not None, LONG)
        yield process, said.read_text
    finally:
        process.kill()
        process.wait()


def test_up_starts_again_what_ends_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """The SuperLink and a node are killed, each is back; SIGTERM ends all of it and no bystander."""
    federation = make(tmp_path / "fed", 2)
    use_echo_app(federation)
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    (federation.folder / "processes.json").write_text(f'{{"node-0": {{"pid": {bystander.pid}, "mark": null}}}}')
    with in_the_foreground(federation) as (process, said):
        # A SuperLink, two nodes, and a helper of each.
        assert children.wait_until(lambda: len(working_for(federation)) >= 6, LONG)
        for module in ("fedseq.flower.superlink", "fedseq.flower.supernode"):
            [first, *_] = [one for one in psutil.Process(process.pid).children() if module in one.cmdline()]
            first.kill()
        assert children.wait_until(lambda: "the SuperLink has ended; starting it again" in said(), LONG)
        assert children.wait_until(lambda: "node 0 has ended; starting it again" in said(), LONG)
        again = up.log_file(federation, "node-0")
        assert children.wait_until(lambda: len(psutil.Process(process.pid).children()) == 3, LONG)
        assert children.wait_until(lambda: children.ONLINE in again.read_bytes(), LONG)
        assert "answer of partition 1" in "\n".join(run_to_the_end(federation))
        assert main(["federation", "up", str(federation.folder)]) == 2  # it is up already
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG) == 0
    assert not working_for(federation)
    assert bystander.poll() is None
    bystander.communicate(b"\n")
    with pytest.raises(FedSeqError, match="fedseq federation up"):
        run_to_the_end(federation)


def run_to_the_end(federation: Federation) -> list[str]:
    shown: list[str] = []
    app_run.run(federation, [], shown.append)
    return shown


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere what was held by a killed process goes on")
def test_what_up_holds_ends_with_it_however_it_ends(tmp_path: Path) -> None:
    federation = make(tmp_path / "fed", 1, insecure=True)
    with in_the_foreground(federation) as (process, said):
        assert "1 of 1 online" in status(federation), said()
        os.kill(process.pid, signal.SIGKILL)
        assert children.wait_until(lambda: not working_for(federation), LONG)


def status(federation: Federation) -> str:
    words = [sys.executable, "-m", "fedseq", "federation", "status", str(federation.folder)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_detached_it_goes_on_until_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    federation = make(tmp_path / "fed", 1, insecure=True)
    place = str(federation.folder)
    assert main(["federation", "up", place, "--detach"]) == 0
    try:
        assert up.READY in capsys.readouterr().out
        assert children.answers(federation, federation.port)
        with pytest.raises(FedSeqError, match="held by another process"), up.held(federation):
            pass
    finally:
        assert main(["federation", "down", place]) == 0
    assert "stopped." in capsys.readouterr().out
    assert children.wait_until(lambda: not working_for(federation), LONG)  # it lets go shortly before it ends
    assert not (federation.folder / "down").exists()
    assert main(["federation", "down", place]) == 0
    assert "nothing of it was running" in capsys.readouterr().out


def test_registered_keys_outlive_the_superlink(tmp_path: Path) -> None:
    with running(tmp_path / "fed", 1, echo=True) as fed:
        assert fed.log("superlink").count("Created node_id") == 1
        fed.deployment.stop()
        assert children.is_free(fed.federation.port)
        fed.deployment.start()
        assert "Created node_id" not in fed.log("superlink")
