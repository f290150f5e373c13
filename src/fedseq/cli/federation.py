"""Make, start, run and stop a real federation on Flower."""

import importlib.util
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedseq.cli import INTERRUPTED, add_config_flags, config_from
from fedseq.cli.console import make_console
from fedseq.config import FIELDS
from fedseq.errors import FedSeqError, unknown

if TYPE_CHECKING:
    from fedseq.flower.folder import Federation

EXAMPLE = """fedseq federation init fed --nodes 5 --dataset digits --rounds 20
  fedseq federation up fed        # a SuperLink and 5 SuperNodes on this machine
  fedseq federation run fed       # train; results in fed/run
  fedseq federation down fed      # stop just these
  fedseq federation init fed --nodes 3 --host fl.example.org    # many machines: commands in fed/README.md"""
NEEDED = ("flwr", "cryptography")
SIMULATED = {"engine", "workers", "ray_address", "attack", "attackers"}  # nothing of these is in a real federation
PORT = 8710

_INIT = """Write the folder of a federation: app, run-config, certificates, node keys, and README.md with the commands.

The connection is encrypted (TLS) and every node has a key of its own. Each node is one client; its data is its part of
--dataset, or with --own-data a file that it names itself. Other options are those of fedseq run."""
ACTIONS = {  # what it does in few words, in more words, and an example
    "init": ("write a ready folder", _INIT, "fedseq federation init fed --nodes 5 --algorithm fedseq+scaffold"),
    "up": (
        "start a SuperLink and its nodes on this machine",
        "Start the SuperLink and the nodes on this machine (127.0.0.1); what runs already is left alone.",
        "fedseq federation up fed\n  fedseq federation up fed --node 2    # again, after it was killed",
    ),
    "run": (
        "run the app and show its output",
        "Run the app on the SuperLink of this machine, and show its output to the end.",
        "fedseq federation run fed --set rounds=5 --set seed=1\n  fedseq federation run fed --simulation",
    ),
    "status": ("what runs", "Show which of the processes that `up` started run.", "fedseq federation status fed"),
    "down": ("stop what `up` started", "Stop what `up` started, and nothing else.", "fedseq federation down fed"),
}


def add_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", parser_class=_strict(type(parser)), title="actions"
    )
    parsers = {name: _add_action(actions, name, *words) for name, words in ACTIONS.items()}
    _add_init(parsers["init"])
    up, run = parsers["up"], parsers["run"]
    up.add_argument("--node", type=int, action="append", metavar="K", help="only this node; may be given repeatedly")
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="an option for this run only")
    run.add_argument("--simulation", action="store_true", help="in Flower's simulation; neither `up` nor keys needed")


def main(arguments: Namespace) -> int:
    if arguments.action is None:
        raise FedSeqError("which action? init, up, run, status or down. See: fedseq federation --help")
    for package in NEEDED:
        if importlib.util.find_spec(package) is None:
            raise FedSeqError(f"a federation needs the package {package}: pip install 'fedseq[flower]'")
    actions = {"init": _init, "up": _up, "run": _run, "status": _status, "down": _down}
    return actions[arguments.action](arguments)


def _add_action(actions: Any, name: str, summary: str, description: str, example: str) -> ArgumentParser:
    parser = actions.add_parser(
        name, help=summary, description=description, epilog=f"example:\n  {example}", allow_abbrev=False,
        formatter_class=RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("folder", metavar="DIR", help="folder of the federation")
    return parser


def _strict(parent: type[ArgumentParser]) -> type[ArgumentParser]:
    """An option that an action does not know is told here, where its own options are known."""

    class Strict(parent):  # type: ignore[valid-type,misc]
        def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
            found, rest = super().parse_known_args(args, namespace)
            if rest and rest[0].startswith("--"):
                raise unknown(
                    "option", rest[0].split("=")[0], (o for o in self._option_string_actions if o[:2] == "--")
                )
            return found, rest

    return Strict


def _add_init(parser: ArgumentParser) -> None:
    def add(name: str, metavar: str, help: str, kind: type = str, default: Any = "", **more: Any) -> None:
        shown = f" (default: {default})" if default else ""
        parser.add_argument(name, metavar=metavar, help=help + shown, type=kind, default=default, **more)

    add("--nodes", "N", "how many nodes, each one client", int, None, required=True)
    add("--host", "NAME", "name or address under which nodes reach the SuperLink", str, "127.0.0.1")
    add("--port", "N", "of the SuperLink; nodes on its machine take the next ones", int, PORT)
    trust = parser.add_mutually_exclusive_group()
    trust.add_argument("--tls", action="store_true", help="encrypt, and give each node a key; this is the default")
    trust.add_argument("--insecure", action="store_true", help="neither; refused unless --host is this machine")
    parser.add_argument("--own-data", action="store_true", help="each node brings data of its own")
    add("--server-data", "SOURCE", "for --own-data: examples to evaluate on: npz:FILE, folder:DIR or parquet:FILE")
    add("--node-data", "SOURCE", "for --own-data: node K's data when `up` starts it, as npz:/data/node-{node}.npz")
    add("--hop-deadline", "SECONDS", "after which a client's visit is given up", float, 600)
    add("--wait", "SECONDS", "how long a run waits for all nodes at its start", float, 600)
    add("--config", "FILE.yaml", "options from a file; flags go over it")
    add_config_flags(parser, [name for name in FIELDS if name not in SIMULATED])


def _init(arguments: Namespace) -> int:
    from fedseq.flower import folder
    from fedseq.flower.settings import Settings

    for name in ("hop_deadline", "wait"):
        if not 0 < getattr(arguments, name) < float("inf"):
            raise FedSeqError(f"--{name.replace('_', '-')} takes a number of seconds greater than 0.")
    settings = Settings(hop_deadline=arguments.hop_deadline, wait=arguments.wait, server_data=arguments.server_data)
    made = folder.init(
        Path(arguments.folder), arguments.nodes, config_from(arguments), host=arguments.host, port=arguments.port,
        insecure=arguments.insecure, own_data=arguments.own_data, node_data=arguments.node_data, settings=settings,
    )  # fmt: skip
    _say(f"{arguments.folder}: a federation of {made.nodes} nodes, {'TLS and keys' if made.tls else 'INSECURE'}.")
    _say(f"try it here:   fedseq federation up {arguments.folder}")
    _say(
        f"many machines: {Path(arguments.folder) / 'README.md'}"
        if made.tls
        else "many machines need TLS: init without --insecure"
    )
    return 0


def _up(arguments: Namespace) -> int:
    from fedseq.flower import local

    federation = _read(arguments)
    started = local.up(federation, arguments.node, _say)
    _say(f"{', '.join(started)} online." if started else "all of it runs already.")
    _say(f"train with: fedseq federation run {arguments.folder}   stop with: fedseq federation down {arguments.folder}")
    return 0


def _run(arguments: Namespace) -> int:
    from fedseq.flower import runs
    from fedseq.flower.folder import NAME

    federation = _read(arguments)
    work = runs.simulate if arguments.simulation else runs.run
    try:
        work(federation, arguments.set, _say)
    except runs.Followed as stop:
        if not arguments.simulation:
            home = f"FLWR_HOME={federation.folder / 'flwr'}"
            _say(
                f"the run goes on. Follow it: {home} flwr log {stop} {NAME}\nStop it:   {home} flwr stop {stop} {NAME}"
            )
        return INTERRUPTED
    return 0


def _status(arguments: Namespace) -> int:
    from fedseq.flower import local

    federation = _read(arguments)
    running = local.status(federation)
    simulation = [local.SIMULATION] if local.SIMULATION in running else []
    for name in (local.SUPERLINK, *map(local.node_name, range(federation.nodes)), *simulation):
        _say(f"{name:<12} {f'runs as process {running[name].pid}' if name in running else 'does not run'}")
    return 0


def _down(arguments: Namespace) -> int:
    from fedseq.flower import local

    stopped = local.down(_read(arguments))
    _say(f"stopped: {', '.join(stopped)}" if stopped else "nothing of it was running.")
    return 0


def _read(arguments: Namespace) -> "Federation":
    from fedseq.flower import folder

    return folder.read(Path(arguments.folder))


def _say(text: str) -> None:
    make_console().print(text, markup=False, highlight=False, soft_wrap=True)
