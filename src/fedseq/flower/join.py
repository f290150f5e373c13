"""A site that takes part: its folder, its key, and its node, which is kept running.

kit.json, ca.crt     what the kit says
node-K, node-K.pub   the key that was made here; only the second file ever leaves the site
site.json            where the data is, and a mark by which we know that the folder is ours
memory/              what an algorithm keeps between visits
flwr/, logs/         Flower's own, and what the node says
"""

import contextlib
import os
import re
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import filelock

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import read_json, write_atomically, write_json
from fedseq.flower import children, keys
from fedseq.flower.children import Child
from fedseq.flower.federation_folder import Kit, read_kit
from fedseq.flower.run_options import absolute, refuse_quotes

SETTINGS, LOCK = "site.json", "site.lock"
MARK = "mark"  # in site.json
ASK_AGAIN = 10.0  # seconds between two tries to be let in
CONNECT_SECONDS = 10.0
Say = Callable[[str], None]


@dataclass(frozen=True)
class Site:
    folder: Path
    kit: Kit
    data: str = ""  # npz:FILE, folder:DIR or parquet:FILE
    data_dir: str = ""  # where a named data set is

    @property
    def key(self) -> Path:
        return self.folder / f"node-{self.kit.node}"

    @property
    def public_key(self) -> Path:
        return self.folder / f"node-{self.kit.node}.pub"

    @property
    def log(self) -> Path:
        return self.folder / "logs" / "node.log"


def settle(source: Path, folder: Path | None = None, data: str = "", data_dir: str = "", trust: bool = False) -> Site:
    """The folder of a site, made from its kit or found as it was left; its key is made here, once.

    `trust` takes over a folder that this account has not made a site.
    """
    kit = read_kit(source)
    folder = (folder or (source if source.is_dir() else Path(f"node-{kit.node}"))).absolute()
    _refuse_another(kit, folder, trust)
    before = read_json(folder / SETTINGS) or {}
    given = {"data": absolute("dataset", data), "data_dir": absolute("data_dir", data_dir)}
    chosen = {name: value or str(before.get(name, "")) for name, value in given.items()}
    _check_data(kit, chosen["data"])
    refuse_quotes(folder, *chosen.values())
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    mark = _own_mark(folder) or _new_mark(folder)
    for name, text in kit.files.items():
        write_atomically(folder / name, text.encode())
    write_json(folder / SETTINGS, {**chosen, MARK: mark})
    for name in ("memory", "flwr", "logs"):
        (folder / name).mkdir(mode=0o700, exist_ok=True)
    site = Site(folder, kit, **chosen)
    keys.ensure_node_key(site.key)
    return site


def stay(site: Site, say: Say) -> None:
    """Keep the node running until we are interrupted; then stop it. One that ends is started again."""
    started: list[Child] = []
    with _held(site):
        try:
            while True:
                _wait_until_reachable(site, say)
                started = [_start(site)]
                _watch(site, started[0], say)
                time.sleep(ASK_AGAIN)
        finally:
            children.stop(started)


def unreachable(kit: Kit) -> str:
    """Why the SuperLink cannot be reached, or is not the one that the kit speaks of; nothing if all is well."""
    trust = ssl.create_default_context(cadata=kit.authority)
    try:
        with (
            socket.create_connection((kit.host, kit.port), timeout=CONNECT_SECONDS) as plain,
            trust.wrap_socket(plain, server_hostname=kit.host),
        ):
            return ""
    except ssl.SSLCertVerificationError as error:
        return f"its certificate is not of the authority in the kit ({error.verify_message})"
    except OSError as error:
        return error.strerror or str(error)


def _wait_until_reachable(site: Site, say: Say) -> None:
    said = ""
    while reason := unreachable(site.kit):
        if reason != said:
            address = f"{site.kit.host}:{site.kit.port}"
            say(f"the SuperLink {address} cannot be used: {reason}. Trying again every {ASK_AGAIN:g} s.")
        said = reason
        time.sleep(ASK_AGAIN)


def _start(site: Site) -> Child:
    config = children.node_config(
        site.kit.node, site.kit.nodes, site.folder / "memory", data=site.data, **{"data-dir": site.data_dir}
    )
    address = f"[{site.kit.host}]" if ":" in site.kit.host else site.kit.host
    port = children.free_port(site.kit.port + 1 + site.kit.node)
    trust = children.Trust(site.folder / "ca.crt", site.key)
    words = children.supernode_words(f"{address}:{site.kit.port}", port, config, trust)
    return Child(words, children.environment(site.folder / "flwr"), site.folder, site.log)


def _watch(site: Site, child: Child, say: Say) -> None:
    """Tell when it is let in, and return when it has ended."""
    online = False
    while child.alive:
        if not online and child.says(children.ONLINE):
            online = True
            say(f"online as client {site.kit.node} of {site.kit.nodes}. Ctrl-C leaves the federation.")
        time.sleep(children.POLL)
    if online:
        say(f"the node has ended; starting it again. What it said is in {site.log}.")
    elif child.says(children.NOT_LET_IN):
        say(
            f"not let in: the operator has not registered {site.public_key.name} yet, or still considers this node "
            f"alive, up to a minute after it was killed. Trying again in {ASK_AGAIN:g} s."
        )
    else:
        raise FedSeqError(f"the node did not start. Its log ends:\n{child.last_lines()}")


def _refuse_another(kit: Kit, folder: Path, trust: bool) -> None:
    """A folder that is not ours holds a kit and nothing else: its key and its data would be somebody else's choice."""
    held = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    if not held:
        return
    try:
        there = read_kit(folder)
    except FedSeqError:
        raise FedSeqError(f"{folder} exists and is not a site's. Choose another folder with --out.") from None
    if there != kit:
        raise FedSeqError(f"{folder} is the site of another kit. Choose another folder with --out.")
    more = ", ".join(sorted(held - set(kit.files)))
    if more and not trust and not _own_mark(folder):
        raise FedSeqError(
            f"{folder} holds more than a kit, and was not joined from this account: {more[:200]}. Nothing of it was "
            f"used. Remove all but {' and '.join(kit.files)}, or join with the zip file; if it is a site of your own, "
            "add --trust."
        )


def _own_mark(folder: Path) -> str:
    """The mark of a site that this account has made; empty for another folder, from which every file may be forged."""
    mark = str((read_json(folder / SETTINGS) or {}).get(MARK, ""))
    return mark if re.fullmatch("[0-9a-f]{32}", mark) and (_own_marks() / mark).exists() else ""


def _new_mark(folder: Path) -> str:
    """Kept in the folder, which is closed to others for it, and outside."""
    mark = secrets.token_hex(16)
    folder.chmod(0o700)
    _own_marks().mkdir(mode=0o700, parents=True, exist_ok=True)
    write_atomically(_own_marks() / mark, f"{folder}\n".encode())
    return mark


def _own_marks() -> Path:
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "fedseq" / "sites"


def _check_data(kit: Kit, data: str) -> None:
    """Read it once, so that what is wrong with it is told here and not in the server's log."""
    from fedseq.data import load_labelled

    if kit.own_data and not data:
        raise FedSeqError(
            "this federation's sites have data of their own: add --data npz:FILE, folder:DIR or parquet:FILE."
        )
    if data and not kit.own_data:
        raise FedSeqError("this federation's sites take parts of a named data set: leave --data out.")
    if data:
        load_labelled(data)


@contextlib.contextmanager
def _held(site: Site) -> Iterator[None]:
    """For this process alone."""
    try:
        with filelock.FileLock(site.folder / LOCK, blocking=False):
            yield
    except filelock.Timeout:
        raise FedSeqError(f"the site in {site.folder} has been joined already, by another process.") from None
