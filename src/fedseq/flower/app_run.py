"""A run of a federation's app: on its SuperLink and nodes, or in Flower's simulation."""

import json
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fedseq.basics.errors import FedSeqError
from fedseq.flower import children
from fedseq.flower.children import START_SECONDS, Child, answers, superlink_words, wait_for_superlink, wait_until
from fedseq.flower.federation_folder import LOOPBACK, NAME, SERVER_FOLDER, Federation, write_connection
from fedseq.flower.run_options import overrides
from fedseq.flower.run_options import words as toml_words
from fedseq.flower.up import held, is_up, log_file

STARTED = re.compile(r"Successfully started run (\d+)")
COMPLETED = "finished:completed"


class Followed(KeyboardInterrupt):
    """Ctrl-C while a run was followed: it goes on without us."""


def run(federation: Federation, changes: Iterable[str], show: Callable[[str], None]) -> None:
    """Start a run and show its output to the end; an error when it did not complete."""
    options = overrides(federation, changes)
    _refuse_without_superlink(federation)
    _follow(federation, federation.folder / "flwr", options, show)


def stop(federation: Federation) -> list[str]:
    """Stop the runs under way, whose folders keep what was learned. Returns their numbers."""
    _refuse_without_superlink(federation)
    home = federation.folder / "flwr"
    numbers = [run["run-id"] for run in listed(home) if not run["status"].startswith("finished")]
    for number in numbers:
        asked = _flwr(home, "stop", number, NAME)
        if asked.returncode:
            raise FedSeqError(f"run {number} could not be stopped:\n{(asked.stdout + asked.stderr).strip()}")
    return numbers


def listed(home: Path, *more: str) -> list[dict[str, str]]:
    """The runs that the SuperLink knows, as Flower tells of them."""
    asked = _flwr(home, "ls", NAME, *more, "--format", "json")
    try:
        found = json.loads(asked.stdout)["runs"]
        return [{name: "" if value in (None, "N/A") else str(value) for name, value in run.items()} for run in found]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise FedSeqError(f"Flower could not list the runs:\n{(asked.stdout + asked.stderr).strip()}") from None


def _refuse_without_superlink(federation: Federation) -> None:
    """One that is being started is waited for."""
    wait_until(lambda: answers(federation, federation.port) or not is_up(federation), START_SECONDS)
    if not answers(federation, federation.port):
        raise FedSeqError(
            f"no SuperLink of this federation answers on {LOOPBACK}:{federation.port}. "
            f"Start it with: fedseq federation up {federation.folder}"
        )


def simulate(federation: Federation, changes: Iterable[str], show: Callable[[str], None]) -> None:
    """The same app with virtual nodes, behind a SuperLink that lives as long as the run and leaves nothing behind."""
    if federation.own_data:
        raise FedSeqError("virtual nodes have no data of their own. Start real ones with: fedseq federation up")
    # Virtual nodes have no keys, and the real run's folder is not theirs.
    home = federation.folder / "simulation"
    own = {"keys": False, "out": "run-simulation", "memory-dir": str(home / "memory")}
    options = {**own, **overrides(federation, changes)}
    home.mkdir(mode=0o700, exist_ok=True)
    port = children.free_port(federation.port + 1 + federation.nodes)
    words = superlink_words(federation, LOOPBACK, port, None)
    words = [*(word for word in words if word != "--enable-supernode-auth"), "--simulation"]
    nodes = f"num-supernodes={federation.nodes} client-resources-num-cpus=1"
    ray = tempfile.mkdtemp(prefix="fedseq-ray-")  # in the folder, Ray's sockets could have too long a name
    with held(federation, "simulation"):
        write_connection(home, federation, port)
        superlink = Child(
            words,
            {**_environment(home), "RAY_TMPDIR": ray, SERVER_FOLDER: str(federation.folder)},
            home,
            log_file(federation, "simulation"),
        )
        try:
            wait_for_superlink(federation, superlink, port)
            _follow(federation, home, options, show, "--federation-config", nodes)
        finally:
            children.stop([superlink])
            shutil.rmtree(ray, ignore_errors=True)


def _follow(
    federation: Federation, home: Path, options: dict[str, Any], show: Callable[[str], None], *more: str
) -> None:
    words = ["flwr", "run", str(federation.folder / "app"), NAME, "--stream", *more]
    for change in toml_words(options):
        words += ["--run-config", change]
    number = _shown(words, home, show)
    while not (found := listed(home, "--run-id", number)[0])["status"].startswith("finished"):
        show("the SuperLink was too busy to go on with the log. The run goes on; its log again, from its beginning:")
        _shown(["flwr", "log", number, NAME, "--stream"], home, show, number)
    if found["status"] != COMPLETED:
        raise FedSeqError(f"run {number} did not complete: {found['status']}. {found['status-details']}".strip())


def _shown(words: list[str], home: Path, show: Callable[[str], None], number: str = "") -> str:
    """Show what Flower's command says to its end. Returns the number of the run, if it was not known before."""
    with subprocess.Popen(
        words,
        env=_environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as child:
        try:
            assert child.stdout is not None
            for line in child.stdout:
                number = number or "".join(STARTED.findall(line))
                show(line.rstrip("\n"))
        except KeyboardInterrupt:
            child.send_signal(signal.SIGINT)  # in a terminal it has got one already
            raise Followed(number) from None
    if child.returncode or not number:
        raise FedSeqError("Flower could not start or follow the run; what it said is above.")
    return number


def _flwr(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["flwr", *words], env=_environment(home), capture_output=True, text=True, errors="replace")


def _environment(home: Path) -> dict[str, str]:
    """A Ray cluster of its own, whatever others run on this machine, on loopback; Ray reports nothing either."""
    ours = {"RAY_ADDRESS": "local", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    return {**children.environment(home), **ours}
