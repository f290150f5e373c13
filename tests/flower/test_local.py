"""Real processes on loopback: what is started, who is let in, and that stopping leaves nothing behind."""

import json
import re
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import psutil
import pytest

from fedseq.basics.errors import FedSeqError
from fedseq.cli import main
from fedseq.flower.deployment import admission, commands, folder, local, processes, runs
from fedseq.flower.deployment.processes import Process

from .federations import Running, free_ports, make, running, use_echo_app

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # real processes, and perhaps a busy machine

LONG = 120.0


def family(federation):
    return processes.family(list(local.status(federation).values()))


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


def home_of(process):
    try:
        return process.environ().get("FLWR_HOME")
    except psutil.Error:  # ended, or another user's
        return None


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


@pytest.fixture(scope="module")
def fed(tmp_path_factory):
    """Two nodes with TLS and keys, of which the first is up."""
    federation = make(tmp_path_factory.mktemp("federations") / "fed", 2)
    use_echo_app(federation)
    try:
        assert local.up(federation, [0]) == ["superlink", "node-0"]
        yield Running(federation)
    finally:
        local.down(federation)


def test_everything_listens_on_loopback_only(fed):
    found = listening(process.pid for process in family(fed.federation))
    assert {port for _, port in found} == {fed.federation.port, fed.federation.port + 1}
    assert {address for address, _ in found} == {"127.0.0.1"}


def test_strangers_are_refused_and_the_right_node_is_let_in(fed, tmp_path):
    other, federation = folder.init(tmp_path / "other", 1), fed.federation
    admission.make_missing_keys(other, [0])
    admission.make_missing_keys(federation, [1])
    authority, key = "--root-certificates", "--auth-supernode-private-key"
    ours, own_key = str(federation.certificates / "ca.crt"), str(federation.node_key(1))
    strangers = {
        "no TLS": ["--insecure"],
        "another authority": [authority, str(other.certificates / "ca.crt"), key, own_key],
        "a key that is not registered": [authority, ours, key, str(other.node_key(0))],
        "no key": [authority, ours],
    }
    first = free_ports(10)
    command = ["flower-supernode", "--superlink", f"127.0.0.1:{federation.port}", "--host", "127.0.0.1"]
    tried = {}
    for number, (name, words) in enumerate(strangers.items()):
        words = [*command, "--port", str(first + number), "--max-retries", "1", *words]
        tried[name] = processes.start(words, commands.environment(tmp_path), tmp_path, tmp_path / f"{name}.log")
    try:
        assert processes.wait_until(lambda: not any(process.alive for process in tried.values()), LONG)
    finally:
        processes.kill(tried.values())
    said = {name: (tmp_path / f"{name}.log").read_text() for name in strangers}
    for text in said.values():
        assert "Exit Code: 305" in text, text
        assert "SuperNode ID" not in text
    assert "CERTIFICATE_VERIFY_FAILED" in said["another authority"]
    assert fed.log("superlink").count("Activated node_id") == 1
    key_file = federation.node_key(1)
    good = key_file.read_text()
    key_file.write_text("no key")
    with pytest.raises(FedSeqError, match=r"(?s)node 1 was not let in.*Unable to parse the private key"):
        local.up(federation, [1])
    assert set(local.status(federation)) == {"superlink", "node-0"}  # what was started in vain is stopped
    key_file.write_text(good)
    assert local.up(federation, [1]) == ["node-1"]
    assert fed.log("superlink").count("Activated node_id") == 2


def test_a_certificate_of_another_authority_is_not_our_superlink(fed, tmp_path):
    other = folder.init(tmp_path / "other", 1, port=fed.federation.port)
    assert local.answers(fed.federation, fed.federation.port)
    assert not local.answers(other, other.port)
    with pytest.raises(FedSeqError, match=f"port {other.port} is taken"):
        local.up(other)
    assert local.status(other) == {}
    assert not (other.folder / "processes.json").exists()


def test_another_machine_can_neither_register_a_key_nor_start_a_run(fed):
    """A proxy on this machine says for whom it asks; the SuperLink takes that for the caller."""
    for path in ("/v1/control/start-run", "/v1/control/register-node", "/v1/runtime/acquire-task", "/docs"):
        assert ask(fed.federation, path, {"X-Forwarded-For": "10.0.0.7"}) == 403
        assert ask(fed.federation, path, {}) != 403
    assert ask(fed.federation, "/v1/fleet/pull-messages", {"X-Forwarded-For": "10.0.0.7"}) != 403


def test_a_run_that_failed_is_told(fed, capfd):
    local.up(fed.federation)
    assert main(["federation", "run", str(fed.folder), "--set", "rounds=13"]) == 2
    told = capfd.readouterr()
    answers = [line for line in told.out.splitlines() if line.startswith("answer of partition")]
    assert sorted(answers) == ["answer of partition 0", "answer of partition 1"]
    assert "rounds 13" in told.out
    assert "did not complete: finished:failed. ServerApp failed with exception: thirteen rounds" in told.err


def test_a_run_under_way_is_shown_and_can_be_stopped(fed, capsys):
    local.up(fed.federation)
    ended = []

    def follow():
        try:
            fed.run("rounds=99")  # never ends by itself
        except FedSeqError as error:
            ended.append(str(error))

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    home = fed.folder / "flwr"
    assert processes.wait_until(lambda: any(run["status"] == "running" for run in runs.listed(home)), LONG)
    assert main(["federation", "status", str(fed.folder)]) == 0
    assert re.search(r"(?m)^run \d+: running$", capsys.readouterr().out)
    assert main(["federation", "stop", str(fed.folder)]) == 0
    assert "stopped: run" in capsys.readouterr().out
    follower.join(LONG)
    assert len(ended) == 1
    assert "did not complete: finished:stopped" in ended[0]
    assert main(["federation", "stop", str(fed.folder)]) == 0
    assert "no run was under way" in capsys.readouterr().out


def test_a_killed_node_is_gone_with_its_helpers(fed, capsys):
    local.up(fed.federation)
    before = family(fed.federation)
    fed.kill(1)
    assert len(before) - len(family(fed.federation)) >= 2  # the node and its helper
    assert main(["federation", "status", str(fed.folder)]) == 0
    assert "node-1       does not run" in capsys.readouterr().out


def test_insecure_is_on_loopback_too(tmp_path):
    with running(tmp_path / "fed", 1, insecure=True, echo=True, start=False) as fed:
        with pytest.raises(FedSeqError, match="no node 7"):
            local.up(fed.federation, [7])
        local.up(fed.federation)
        assert {address for address, _ in listening(p.pid for p in family(fed.federation))} == {"127.0.0.1"}


def test_own_data_needs_to_know_where_it_is(tmp_path):
    from fedseq.flower.apps.settings import Settings

    np.savez("test.npz", x=np.zeros((4, 3), np.float32), y=np.arange(4) % 2)
    federation = make(tmp_path / "fed", 2, own_data=True, settings=Settings(server_data="npz:test.npz"))
    with pytest.raises(FedSeqError, match="--node-data"):
        local.up(federation)
    federation = make(tmp_path / "fed2", 2, own_data=True, node_data="npz:/data/{node}.npz",
                      settings=Settings(server_data="npz:test.npz"))  # fmt: skip
    words = commands.node_of(federation, 1, 9999)
    assert 'data="npz:/data/1.npz"' in words[words.index("--node-config") + 1]


def test_a_simulation_leaves_nothing_behind(tmp_path):
    with running(tmp_path / "fed", 2, echo=True, start=False) as fed:
        assert "rounds 3" in fed.simulate("rounds=3")
        left = [process for process in psutil.process_iter() if home_of(process) == str(fed.folder / "simulation")]
        assert left == []


def test_what_is_missing_is_started_and_what_runs_is_left_alone(fed):
    """Stands here because the SuperLink lets a killed node in again only after a minute."""
    before = local.status(fed.federation)
    if "node-1" in before:
        fed.kill(1)
    assert local.up(fed.federation) == ["node-1"]
    after = local.status(fed.federation)
    assert (after["superlink"], after["node-0"]) == (before["superlink"], before["node-0"])
    assert local.up(fed.federation) == []
    assert local.status(fed.federation) == after


def test_down_leaves_nothing_behind_and_stops_nothing_else(fed):
    local.up(fed.federation)
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        ours = family(fed.federation)
        assert len(ours) >= 6  # a SuperLink, two nodes, and a helper of each
        # A number that was given to another process since: it has no such mark, and must not be touched.
        record = fed.folder / "processes.json"
        recorded = json.loads(record.read_text())
        record.write_text(json.dumps({**recorded, "node-9": vars(Process(bystander.pid, "0" * 32))}))
        fed.kill(1)
        assert local.down(fed.federation) == ["superlink", "node-0"]
        assert not [process for process in ours if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
        assert bystander.poll() is None
        assert not record.exists()
        assert local.is_free(fed.federation.port)
        assert local.down(fed.federation) == []
        with pytest.raises(FedSeqError, match="fedseq federation up"):
            fed.run()
        # Registered keys outlive the SuperLink: the node is known when it comes back.
        assert fed.log("superlink").count("Created node_id") == 2
        assert local.up(fed.federation, [0]) == ["superlink", "node-0"]
        assert "Created node_id" not in fed.log("superlink")
    finally:
        bystander.communicate(b"\n")
