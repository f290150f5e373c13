"""A run of a federation's app: on its SuperLink and nodes, or in Flower's simulation."""

import json
import re
import shutil
import signal
import subprocess
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedseq.basics.errors import FedSeqError, unknown
from fedseq.flower.apps.settings import Settings, resolve_federation
from fedseq.flower.deployment import commands, local
from fedseq.flower.deployment.federation import LOOPBACK, NAME, Federation
from fedseq.flower.deployment.folder import write_connection
from fedseq.flower.deployment.runconfig import key_of
from fedseq.flower.deployment.runconfig import words as toml_words
from fedseq.options.config import all_options
from fedseq.options.config_files import coerce

STARTED = re.compile(r"Successfully started run (\d+)")
COMPLETED = "finished:completed"
_SECONDS = {field.name for field in fields(Settings) if field.type is float}


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
    if not local.answers(federation, federation.port):
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
    own = {"keys": "", "out": str(federation.folder / "run-simulation"), "memory-dir": str(home / "memory")}
    options = {**own, **overrides(federation, changes)}
    if local.SIMULATION in local.status(federation):
        raise FedSeqError(f"a simulation runs here already. Stop it with: fedseq federation down {federation.folder}")
    home.mkdir(mode=0o700, exist_ok=True)
    port = local.node_port(federation, federation.nodes)
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
        name = key_of(name.strip())
        if not equals:
            raise FedSeqError(f"--set takes KEY=VALUE, such as rounds=5, not '{change}'.")
        if name not in present and "." in name:
            raise _not_written(federation, name)
        if name not in present:
            raise unknown("option of the run-config", name, present)
        if '"' in value:
            raise FedSeqError(f"--set {name}: Flower cannot read a value with a quote in it.")
        found[name] = _converted(name, value.strip(), present[name])
    options = all_options()
    written, asked = (
        {field: value for name, value in values.items() if (field := _field(name)) in options or "." in field}
        for values in (present, found)
    )
    resolve_federation(written, federation.own_data, asked)  # refuses what would have no effect
    return found


def _written(federation: Federation) -> dict[str, Any]:
    path = federation.folder / "app" / "pyproject.toml"
    try:
        config: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))["tool"]["flwr"]["app"]["config"]
    except (OSError, ValueError, KeyError) as error:
        raise FedSeqError(f"{path} holds no run-config ({error!r}). Repair it, or make the folder anew.") from None
    return _flat(config)


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """As Flower reads it: a table's names stand behind its own, `smoothed.keep`."""
    tables = {name: _flat(value) for name, value in config.items() if isinstance(value, dict)}
    below = {f"{table}.{name}": value for table, values in tables.items() for name, value in values.items()}
    return {name: value for name, value in config.items() if name not in tables} | below


def _field(name: str) -> str:
    """The option's name in FedSeq."""
    return name if "." in name else name.replace("-", "_")


def _not_written(federation: Federation, name: str) -> FedSeqError:
    return FedSeqError(
        f"--set {name}: Flower changes only what is in the run-config. If it is a hyper-parameter of your own rule, "
        f'add the line "{name}" = "null" at the end of {federation.folder / "app" / "pyproject.toml"}.'
    )


def _converted(name: str, value: str, before: Any) -> Any:
    field = _field(name)
    if field in all_options() or "." in field:
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
    for change in toml_words(options):
        words += ["--run-config", change]
    number = _shown(words, home, show)
    while not (found := _listed_one(home, number))["status"].startswith("finished"):
        show("the SuperLink was too busy to go on with the log. The run goes on; its log again, from its beginning:")
        _shown(["flwr", "log", number, NAME, "--stream"], home, show, number)
    if found["status"] != COMPLETED:
        raise FedSeqError(f"run {number} did not complete: {found['status']}. {found['status-details']}".strip())


def _shown(words: list[str], home: Path, show: Callable[[str], None], number: str = "") -> str:
    """Show what Flower's command says to its end. Returns the number of the run, if it was not known before."""
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
    return number


def _listed_one(home: Path, number: str) -> dict[str, str]:
    [found] = listed(home, "--run-id", number)
    return found


def _flwr(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["flwr", *words], env=_environment(home), capture_output=True, text=True, errors="replace")


def _environment(home: Path) -> dict[str, str]:
    """A Ray cluster of its own, whatever others run on this machine, on loopback; Ray reports nothing either."""
    ours = {"RAY_ADDRESS": "local", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    return {**commands.environment(home), **ours}
