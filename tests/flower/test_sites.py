"""Sites that join with a kit: what is in it, whose key is believed, and a run with files of their own."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import psutil
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fedseq.basics.errors import FedSeqError
from fedseq.cli import main
from fedseq.data import load_dataset
from fedseq.flower import children, federation_folder, join, keys, registration
from fedseq.flower.federation_folder import Federation, kit_of, read_kit
from fedseq.flower.up import Deployment

from .expected import lines
from .federations import free_ports, running

LONG = 900.0


@pytest.fixture
def made(tmp_path: Path) -> Federation:
    return federation_folder.init(tmp_path / "fed", 2, port=free_ports(20))


def joined(federation: Federation, node: int, place: Path) -> join.Site:
    return join.settle(federation.kit(node), place)


def test_a_kit_holds_no_secret_and_says_all_that_a_site_needs(made: Federation) -> None:
    with zipfile.ZipFile(made.kit(1)) as archive:
        assert sorted(archive.namelist()) == ["ca.crt", "kit.json"]
        assert not any(b"PRIVATE" in archive.read(name) for name in archive.namelist())
    assert read_kit(made.kit(1)) == kit_of(made, 1)
    assert (kit_of(made, 1).node, kit_of(made, 1).nodes) == (1, 2)


def test_a_site_makes_its_key_once_and_keeps_it(made: Federation, tmp_path: Path) -> None:
    found = joined(made, 0, tmp_path / "site")
    assert stat.S_IMODE(found.key.stat().st_mode) == 0o600
    before = found.key.read_bytes(), found.public_key.read_bytes()
    found.public_key.unlink()  # it follows from the other half
    for source in (made.kit(0), found.folder):
        again = join.settle(source, None if source == found.folder else tmp_path / "site")
        assert (again.key.read_bytes(), again.public_key.read_bytes()) == before
    with pytest.raises(FedSeqError, match="site of another kit"):
        join.settle(made.kit(1), tmp_path / "site")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "text").touch()
    with pytest.raises(FedSeqError, match="not a site's"):
        join.settle(made.kit(1), tmp_path / "thesis")
    assert [file.name for file in (tmp_path / "thesis").iterdir()] == ["text"]


def plant(folder: Path) -> None:
    """Modules under names of ours and of what we need, which leave a trace where they are imported."""
    trace = f"import pathlib\npathlib.Path({str(folder / 'RAN')!r}).touch()\nraise SystemExit(3)\n"
    (folder / "fedseq").mkdir()
    for name in ("fedseq/__init__.py", "flwr.py", "click.py", "json.py", "torch.py"):
        (folder / name).write_text(trace)


def unpacked(federation: Federation, place: Path) -> Path:
    place.mkdir()
    for name, text in read_kit(federation.kit(0)).files.items():
        (place / name).write_text(text)
    return place


@pytest.mark.parametrize("planted", ["node-0", "node-0.pub", "site.json", "logs", "json.py", "memory"])
def test_a_folder_that_holds_more_than_a_kit_is_refused(made: Federation, tmp_path: Path, planted: str) -> None:
    kit = unpacked(made, tmp_path / "kit")
    theirs = joined(made, 0, tmp_path / "theirs").folder
    if planted == "logs":
        (kit / "logs").mkdir()
        (kit / "logs" / "node.log").symlink_to(tmp_path / "elsewhere")
    elif planted == "site.json":
        (kit / planted).write_text(json.dumps({"data": "", "data_dir": "/etc", "mark": "0" * 32}))
    elif (theirs / planted).is_file():
        shutil.copy2(theirs / planted, kit / planted)
    else:
        (kit / planted).touch()
    before = {file: file.stat() for file in kit.rglob("*") if not file.is_symlink()}
    for source, out in ((kit, None), (made.kit(0), kit)):
        with pytest.raises(FedSeqError, match=f"holds more than a kit, .* from this account: {planted}"):
            join.settle(source, out)
    assert {file: file.stat() for file in kit.rglob("*") if not file.is_symlink()} == before
    (kit / planted).rename(tmp_path / planted)
    assert join.settle(kit).data_dir == ""
    assert join.settle(kit).folder == kit  # it is ours now


def test_a_site_is_known_by_what_is_kept_outside_of_it(
    made: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = unpacked(made, tmp_path / "kit")
    kit.chmod(0o755)
    before = join.settle(kit, data_dir="here")
    assert stat.S_IMODE(kit.stat().st_mode) == 0o700
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "of another account"))
    with pytest.raises(FedSeqError, match="--trust"):
        join.settle(kit)
    assert join.settle(kit, trust=True) == before
    assert join.settle(kit) == before  # from now on without it
    monkeypatch.undo()
    with pytest.raises(FedSeqError, match="--trust"):  # its mark is the other account's
        join.settle(kit)


@pytest.mark.slow
def test_what_we_start_takes_no_module_from_the_folder_it_is_started_in(
    made: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = joined(made, 0, tmp_path / "site").folder
    plant(place)
    monkeypatch.chdir(place)
    with pytest.raises(FedSeqError, match="could not list keys"):  # as no SuperLink runs
        registration.states(made)
    node = children.supernode_words("127.0.0.1:1", 1, "partition-id=0", None)
    for words in (children.superlink_words(made, "127.0.0.1", 1, None), node):
        child = children.Child([*words, "--help"], children.environment(place), place, place / "logs" / "node.log")
        try:
            assert child.process.wait(LONG) == 0
        finally:
            child.kill()
        assert "show this help message" in (place / "logs" / "node.log").read_text()
    assert not (place / "RAN").exists()


def test_a_log_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"log"):
        children.Child(["sleep", "1000"], dict(os.environ), tmp_path, tmp_path / "log")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"node": 7}, "names no client"),
        ({"host": "x; rm"}, "names no SuperLink"),
        ({"port": "8710"}, "names no client"),
        ({"format": 99}, "another version"),
        ({"more": 1}, "not a kit"),
        ({"nodes": "a" * 100_000}, "too large"),
    ],
)
def test_a_kit_that_is_none_is_told(made: Federation, tmp_path: Path, facts: dict[str, object], message: str) -> None:
    files = kit_of(made, 0).files
    with zipfile.ZipFile(tmp_path / "kit.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("kit.json", json.dumps({**json.loads(files["kit.json"]), **facts}))
        archive.writestr("ca.crt", files["ca.crt"])
    with pytest.raises(FedSeqError, match=message):
        read_kit(tmp_path / "kit.zip")


def test_files_that_are_no_kits_are_told(tmp_path: Path) -> None:
    (tmp_path / "text.zip").write_text("no zip")
    os.mkfifo(tmp_path / "pipe.zip")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("../../escaped", "x")
    for name in ("text.zip", "pipe.zip", "other.zip"):
        with pytest.raises(FedSeqError, match="not a kit"):
            read_kit(tmp_path / name)
    with pytest.raises(FedSeqError, match="there is no kit"):
        read_kit(tmp_path / "nothing.zip")


def test_a_site_is_told_what_is_wrong_with_its_data(tmp_path: Path) -> None:
    np.savez("test.npz", x=np.zeros((4, 3), np.float32), y=np.array([0, 1, 0, 1]))
    own = federation_folder.init(tmp_path / "own", 1, own_data=True, server_data="npz:test.npz")
    named = federation_folder.init(tmp_path / "named", 1)
    for made, data, message in (
        (own, "", "add --data"),
        (own, "npz:nothing.npz", "nothing.npz"),
        (named, "npz:x.npz", "leave --data out"),
    ):
        with pytest.raises(FedSeqError, match=message):
            join.settle(made.kit(0), tmp_path / "site", data)
    assert not (tmp_path / "site").exists()


def test_the_operator_takes_public_keys_and_nothing_else(made: Federation, tmp_path: Path) -> None:
    one, other = (joined(made, node, tmp_path / f"site-{node}") for node in (0, 1))
    with pytest.raises(FedSeqError, match="must not leave its site"):
        registration.admit(made, one.key)
    with pytest.raises(FedSeqError, match="not a public key"):
        registration.admit(made, made.folder / "README.md")
    weak = Ed25519PrivateKey.generate().public_key()
    (tmp_path / "weak.pub").write_bytes(weak.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    with pytest.raises(FedSeqError, match="ECDSA, 384 bits"):
        registration.admit(made, tmp_path / "weak.pub", 0)
    assert registration.admit(made, one.public_key) == 0
    assert made.public_key(0).read_bytes() == one.public_key.read_bytes()
    assert registration.admit(made, one.public_key) == 0  # again: nothing new

    def named(key: Path, node: int) -> Path:
        """The same key, as one of another node."""
        copy = tmp_path / f"node-{node}.pub"
        copy.write_bytes(b" ".join([*key.read_bytes().split()[:2], b"node-%d" % node]))
        return copy

    with pytest.raises(FedSeqError, match="node 0 has another key already"):
        registration.admit(made, named(other.public_key, 0))
    with pytest.raises(FedSeqError, match="key of node 0 already"):
        registration.admit(made, named(one.public_key, 1))
    with pytest.raises(FedSeqError, match="nodes 0 to 1"):
        registration.admit(made, named(other.public_key, 5))
    assert not made.public_key(1).exists()


def test_a_key_that_says_two_nodes_is_asked_about(made: Federation, tmp_path: Path) -> None:
    """By its comment, by its file's name, by --node: a site that passes for another would be let in as that."""
    site = joined(made, 1, tmp_path / "site")
    renamed = tmp_path / "node-0.pub"
    shutil.copy2(site.public_key, renamed)
    for file, node in ((renamed, None), (renamed, 0), (renamed, 1), (site.public_key, 0)):
        with pytest.raises(FedSeqError, match=r"whose key is .*the word after the key says node 1"):
            registration.admit(made, file, node)
    assert not made.public_key(0).exists()
    assert not made.public_key(1).exists()
    assert registration.admit(made, site.public_key, 1) == 1


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is missing: apt-get install openssh-client")
def test_a_fingerprint_is_the_one_that_ssh_shows(tmp_path: Path) -> None:
    keys.ensure_node_key(tmp_path / "key")
    shown = subprocess.run(["ssh-keygen", "-lf", tmp_path / "key.pub"], capture_output=True, text=True, check=True)
    assert registration.fingerprint(tmp_path / "key.pub") == shown.stdout.split()[1]


def test_a_server_that_is_away_or_another_is_told_to_the_site(made: Federation) -> None:
    assert "refused" in join.unreachable(kit_of(made, 0))


def presence(federation: Federation) -> str:
    return registration.presence(federation, 1, registration.states(federation))


def lose_the_key(federation: Federation, place: Path) -> None:
    """A site that makes a new key is let in only when the operator says so, and its old key is forgotten."""
    (place / "node-1").rename(place / "lost")
    (place / "node-1.pub").unlink()
    again = join.settle(place)
    words = ["federation", "register", str(federation.folder), str(again.public_key)]
    assert main(words) == 2
    assert presence(federation) in ("at its site: online", "at its site: offline")
    assert main([*words, "--replace"]) == 0
    assert presence(federation) == "at its site: registered"  # never seen yet
    (place / "node-1").rename(place / "new")
    (place / "node-1.pub").unlink()
    (place / "lost").rename(place / "node-1")
    first = join.settle(place)  # makes the public half of the key that is there
    with pytest.raises(FedSeqError, match="is a key that was replaced"):  # which Flower would leave out in silence
        registration.admit(federation, first.public_key, replace=True)
    assert presence(federation) == "at its site: registered"


@pytest.mark.slow
@pytest.mark.timeout(2700)  # real processes, and perhaps a very busy machine
def test_a_site_joins_with_files_of_its_own_and_no_private_key_travels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Node 0 runs on the server's machine; node 1 joins with its kit, is let in when its key is registered, takes part
    in a run, and leaves at a SIGTERM. The server has a test set and learns neither examples nor labels."""
    digits = load_dataset("digits")
    halves = np.array_split(np.random.default_rng(0).permutation(len(digits.y_train)), 2)
    for node, half in enumerate(halves):
        np.savez(tmp_path / f"data-{node}.npz", x=digits.x_train[half], y=digits.y_train[half])
    np.savez(tmp_path / "server.npz", x=digits.x_test, y=digits.y_test)
    options = {"algorithm": "fedseq", "rounds": 2, "fraction": 1.0, "lr": 0.03, "exemplars": 5}
    with running(
        tmp_path / "fed", 2, options=options, server_data=f"npz:{tmp_path / 'server.npz'}",
        own_data=True, node_data=f"npz:{tmp_path}/data-{{node}}.npz", here=[0],
    ) as fed:  # fmt: skip
        words = ["federation", "join", str(fed.federation.kit(1)), "--data", f"npz:{tmp_path / 'data-1.npz'}"]
        said = tmp_path / "said"
        with said.open("w") as output:
            member = subprocess.Popen([sys.executable, "-m", "fedseq", *words], stdout=output, cwd=tmp_path)
        try:
            assert children.wait_until(lambda: "not let in" in said.read_text(), LONG)
            assert main(["federation", "status", str(fed.folder)]) == 0
            assert "node-1       has not joined: no key of it is registered" in capsys.readouterr().out
            assert main(["federation", "register", str(fed.folder), str(tmp_path / "node-1" / "node-1.pub")]) == 0
            shown = capsys.readouterr().out
            assert "all nodes have their keys" in shown
            assert shown.split("with the key ")[1].split()[0] in said.read_text()
            assert children.wait_until(lambda: "online as client 1 of 2" in said.read_text(), LONG)
            assert main(["federation", "status", str(fed.folder)]) == 0
            assert "node-1       at its site: online" in capsys.readouterr().out
            fed.run()
        finally:
            member.send_signal(signal.SIGTERM)
            assert member.wait(LONG) == 0
        assert "left. Take part again with" in said.read_text()
        words = [found.info["cmdline"] for found in psutil.process_iter(["cmdline"])]
        here = [line for line in words if str(tmp_path / "node-1") in str(line)]
        assert not here
        assert Deployment(fed.federation, None, print).nodes == [0]  # node 1's place is elsewhere
        lose_the_key(fed.federation, tmp_path / "node-1")
        private = (tmp_path / "node-1" / "node-1").read_bytes()
        assert not [file for file in fed.folder.rglob("*") if file.is_file() and private in file.read_bytes()]
    clients = json.loads((fed.folder / "run" / "clients.json").read_text())
    assert clients["examples"] == [len(half) for half in halves]
    assert "label_counts" not in clients
    assert [record["client_updates"] for record in lines(fed.folder / "run")] == [2, 2]
    assert (fed.folder / "run" / "weights.safetensors").exists()
