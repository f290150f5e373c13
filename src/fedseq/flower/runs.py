"""A run of a federation's app: on its SuperLink and nodes, or in Flower's simulation."""

import json
import re
import shutil
import signal
import subprocess
import tempfile
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedseq.config import FIELDS
from fedseq.configfile import coerce
from fedseq.errors import FedSeqError, unknown
from fedseq.flower import commands, local
from fedseq.flower.folder import LOOPBACK, NAME, Federation, write_connection
from fedseq.flower.runconfig import NOT_OF_A_FEDERATION, toml
from fedseq.flower.settings import Settings

STARTED = re.compile(r"Successfully started run (\d+)")
COMPLETED = "finished:completed"
_SECONDS = {field.name for field in fields(Settings) if field.type is float}


class Followed(KeyboardInterrupt):
    """Ctrl-C while a run was followed: it goes on without us."""


def run(federation: Federation, changes: Iterable[str], show: Callable[[str], None]) -> None:
    """Start a run and show its output to the end; an error when it did not complete."""
    options = overrides(federation, changes)
    if not local.answers(federation, federation.port):
        raise FedSeqError(
            f"no SuperLink of this federation answers on {LOOPBACK}:{federation.port}. "
            f"Start it with: fedseq federation up {federation.folder}"
        )
    _follow(federation, federation.folder / "flwr", options, show)


def simulate(federation: Federation, changes: Iterable[str], show: Callable[[str], None]) -> None:
    """The same app with virtual nodes, behind a SuperLink that lives as long as the run and leaves nothing behind."""
    if federation.own_data:
        raise FedSeqError("virtual nodes have no data of their own. Start real ones with: fedseq federation up")
    # Virtual nodes have no keys, and the real run's folder is not theirs.
    home = federation.folder / "simulation"
    own = {"keys": "", "out": str(federation.folder / "run-simulation"), "memory-dir": str(home / "memory")}
    options = {**own, **overrides(federation, changes)}
    if local.SIMULATION in local.status(federation):
        raise FedSeqError(f"a simulation runs here already. Stop it with: fedseq federation down {federation.folder}")
    home.mkdir(mode=0o700, exist_ok=True)
    port = local.free_port(federation, federation.nodes)
    write_connection(home, federation, port)
    log = local.log_file(federation, local.SIMULATION)
    words = commands.superlink(federation, LOOPBACK, port, None)
    words = [*(word for word in words if word != "--enable-supernode-auth"), "--simulation"]
    ray = tempfile.mkdtemp(prefix="fedseq-ray-")  # in the folder, Ray's sockets could have too long a name
    environment = {**_environment(home), "RAY_TMPDIR": ray}
    try:
        superlink = local.start(federation, local.SIMULATION, words, home, environment)
        local.wait_for_answer(federation, superlink, port, log)
        nodes = f"num-supernodes={federation.nodes} client-resources-num-cpus=1"
        _follow(federation, home, options, show, "--federation-config", nodes)
    finally:
        local.down(federation, [local.SIMULATION])
        shutil.rmtree(ray, ignore_errors=True)


def overrides(federation: Federation, changes: Iterable[str]) -> dict[str, Any]:
    """KEY=VALUE words in the types of the run-config, which has to hold the key: Flower changes only what is there."""
    present = _written(federation)
    found = {}
    for change in changes:
        name, equals, value = change.partition("=")
        name = name.strip().replace("_", "-")
        if not equals:
            raise FedSeqError(f"--set takes KEY=VALUE, such as rounds=5, not '{change}'.")
        if name not in present or name.replace("-", "_") in NOT_OF_A_FEDERATION:
            raise unknown("option of the run-config", name, present)
        if '"' in value:
            raise FedSeqError(f"--set {name}: Flower can't read a value with a quote in it.")
        found[name] = _converted(name, value.strip(), present[name])
    return found


def _written(federation: Federation) -> dict[str, Any]:
    path = federation.folder / "app" / "pyproject.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))["tool"]["flwr"]["app"]["config"]
    except (OSError, ValueError, KeyError) as error:
        raise FedSeqError(f"{path} holds no run-config ({error!r}). Repair it, or make the folder anew.") from None


def _converted(name: str, value: str, before: Any) -> Any:
    field = name.replace("-", "_")
    if field in FIELDS:
        return coerce(field, value)
    if field in _SECONDS or isinstance(before, int | float):  # the second: a key of the user's own
        try:
            return json.loads(value)
        except ValueError:
            raise FedSeqError(f"{name} takes a number, not '{value}'.") from None
    return value


def _follow(
    federation: Federation, home: Path, options: dict[str, Any], show: Callable[[str], None], *more: str
) -> None:
    words = ["flwr", "run", str(federation.folder / "app"), NAME, "--stream", *more]
    for name, value in options.items():
        words += ["--run-config", f"{name}={toml(value)}"]
    number = ""
    with subprocess.Popen(
        words, env=_environment(home), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    ) as child:  # fmt: skip
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
    state, details = _state(home, number)
    if state != COMPLETED:
        raise FedSeqError(f"run {number} did not complete: {state}. {details}".strip())


def _state(home: Path, number: str) -> tuple[str, str]:
    words = ["flwr", "ls", NAME, "--run-id", number, "--format", "json"]
    asked = subprocess.run(words, env=_environment(home), capture_output=True, text=True, errors="replace")
    try:
        found = json.loads(asked.stdout)["runs"][0]
        return found["status"], found.get("status-details") or ""
    except (ValueError, KeyError, IndexError, TypeError):
        return "unknown", (asked.stdout + asked.stderr).strip()


def _environment(home: Path) -> dict[str, str]:
    """A Ray cluster of its own, whatever others run on this machine, on loopback; Ray reports nothing either."""
    ours = {"RAY_ADDRESS": "local", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    return {**commands.environment(home), **ours}
