"""Make, start, run and stop a real federation on Flower."""

import importlib.util
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable
from typing import Any

from fedseq.basics.errors import FedSeqError
from fedseq.cli import add_config_flags, add_trust, unknown_option
from fedseq.options.config import all_options

EXAMPLE = """fedseq federation init fed --nodes 5 --dataset digits --rounds 20
  fedseq federation up fed        # a SuperLink and 5 SuperNodes on this machine
  fedseq federation run fed       # train; results in fed/run
  fedseq federation down fed      # stop just these
  fedseq federation init fed --nodes 3 --host fl.example.org    # many machines: commands in fed/README.md
  fedseq federation join node-0.zip --data npz:scans.npz        # at a site, with the kit that it was sent"""
NEEDED = ("flwr", "cryptography", "psutil", "tomli_w")
PORT = 8710

_INIT = """Write the folder of a federation: app, run-config, certificates, a kit for each site, and README.md with the
commands.

The connection is encrypted (TLS), and every node makes a key of its own. Each node is one client; its data is its part
of --dataset, or with --own-data a file that it names itself. Other options are those of fedseq run."""
ACTIONS = {  # what it does in few words, in more words, and an example
    "init": ("write a ready folder", _INIT, "fedseq federation init fed --nodes 5 --algorithm fedseq+scaffold"),
    "up": (
        "start a SuperLink and its nodes on this machine",
        "Start the SuperLink and the nodes on this machine (127.0.0.1); what runs already is left alone.",
        "fedseq federation up fed\n  fedseq federation up fed --node 2    # again, after it was killed\n"
        "  fedseq federation up fed --server    # the SuperLink alone, for nodes at their sites",
    ),
    "join": (
        "take part as a site, with the kit that it was sent",
        "Take part as a site: make its folder and its key (once), tell what to send to the operator, and keep its\n"
        "node connected until Ctrl-C or SIGTERM. The private key never leaves the folder.",
        "fedseq federation join node-0.zip --data folder:/data/scans\n  fedseq federation join node-0    # again",
    ),
    "register": (
        "let a site in, by its public key",
        "Let a site in, by the public key that it made and sent. Compare the fingerprint with the site's.",
        "fedseq federation register fed node-0.pub",
    ),
    "run": (
        "run the app and show its output",
        "Run the app on the SuperLink of this machine, and show its output to the end.",
        "fedseq federation run fed --set rounds=5 --set seed=1\n  fedseq federation run fed --simulation",
    ),
    "status": (
        "what runs, and how far",
        "Show which of the processes that `up` started run, the SuperLink's runs, and how far the run folder is.",
        "fedseq federation status fed",
    ),
    "stop": (
        "stop a run under way",
        "Stop the runs under way. Processes go on, and `run` continues from the last checkpoint.",
        "fedseq federation stop fed",
    ),
    "down": ("stop what `up` started", "Stop what `up` started, and nothing else.", "fedseq federation down fed"),
}


def add_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", parser_class=_strict(type(parser)), title="actions"
    )
    parsers = {name: _add_action(actions, name, *words) for name, words in ACTIONS.items()}
    _add_init(parsers["init"])
    up, run, join, register = (parsers[name] for name in ("up", "run", "join", "register"))
    which = up.add_mutually_exclusive_group()
    which.add_argument("--node", type=int, action="append", metavar="K", help="only this node; may be given repeatedly")
    which.add_argument("--server", action="store_true", help="only the SuperLink, where nodes at their sites reach it")
    join.add_argument("--data", default="", metavar="SOURCE", help="its own: npz:FILE, folder:DIR or parquet:FILE")
    join.add_argument("--data-dir", default="", metavar="DIR", help="where the files of a named data set are")
    join.add_argument("--out", metavar="DIR", help="folder of the site (default: node-K here)")
    join.add_argument(
        "--trust", action="store_true", help="take over the folder of a site that this account did not make"
    )
    register.add_argument("key", metavar="node-K.pub", help="the public key that the site made")
    register.add_argument("--node", type=int, metavar="K", help="the node, if the key does not name it")
    register.add_argument("--replace", action="store_true", help="in place of the key that the node had")
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="an option for this run only")
    run.add_argument("--simulation", action="store_true", help="in Flower's simulation; neither `up` nor keys needed")


def main(arguments: Namespace) -> int:
    if arguments.action is None:
        raise FedSeqError(f"which action? {', '.join(ACTIONS)}. See: fedseq federation --help")
    for package in NEEDED:
        if importlib.util.find_spec(package) is None:
            raise FedSeqError(f"a federation needs the package {package}. In FedSeq's folder: pip install '.[flower]'")
    from fedseq.cli import federation_actions

    act: Callable[[Namespace], int] = getattr(federation_actions, arguments.action)
    return act(arguments)


def _add_action(actions: Any, name: str, summary: str, description: str, example: str) -> ArgumentParser:
    parser: ArgumentParser = actions.add_parser(
        name, help=summary, description=description, epilog=f"example:\n  {example}", allow_abbrev=False,
        formatter_class=RawDescriptionHelpFormatter,
    )  # fmt: skip
    if name == "join":
        parser.add_argument("kit", metavar="KIT", help="node-K.zip, or the folder of a site that has joined before")
    else:
        parser.add_argument("folder", metavar="DIR", help="folder of the federation")
    return parser


def _strict(parent: type[ArgumentParser]) -> type[ArgumentParser]:
    """An option that an action does not know is told here, where its own options are known."""

    class Strict(parent):  # type: ignore[valid-type,misc]
        def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
            found, rest = super().parse_known_args(args, namespace)
            if rest and rest[0].startswith("--"):
                raise unknown_option(self, rest[0])
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
    add("--most-examples", "FACTOR", "a client's claim counts up to so many times the others' median", float, 10)
    add("--config", "FILE.yaml", "options from a file; flags go over it", default=None)
    add_trust(parser, "the file")
    taken = [name for name, found in all_options().items() if not found.simulated]
    add_config_flags(parser, taken, own_rules=True)
