"""Set up and run a real federation on Flower."""

import importlib.util
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any

from fedseq.basics.errors import FedSeqError
from fedseq.cli import add_action, add_actions, add_config_flags, add_trust
from fedseq.options.config import all_options

EXAMPLE = """fedseq federation init fed --nodes 5 --dataset digits --rounds 20
  fedseq federation up fed        # a SuperLink and 5 SuperNodes on this machine, until Ctrl-C
  fedseq federation run fed       # in a second terminal: train; results in fed/run
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
        "run a SuperLink and its nodes on this machine",
        "Run the SuperLink and the nodes on this machine (127.0.0.1) until Ctrl-C or SIGTERM. A process that ends is\n"
        "started again. --detach goes on in the background, until `down`.",
        "fedseq federation up fed\n  fedseq federation up fed --detach\n"
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
        "Show the SuperLink, which nodes are online, the SuperLink's runs, and how far the run folder is.",
        "fedseq federation status fed",
    ),
    "stop": (
        "stop a run under way",
        "Stop the runs under way. Processes go on, and `run` continues from the last checkpoint.",
        "fedseq federation stop fed",
    ),
    "down": ("end what `up` runs", "Ask `up`, in whatever terminal it runs, to end.", "fedseq federation down fed"),
}


def add_arguments(parser: ArgumentParser) -> None:
    actions = add_actions(parser)
    parsers = {name: add_action(actions, name, *words) for name, words in ACTIONS.items()}
    for name, action in parsers.items():
        if name == "join":
            action.add_argument("kit", metavar="KIT", help="node-K.zip, or the folder of a site that joined before")
        else:
            action.add_argument("folder", metavar="DIR", help="folder of the federation")
    _add_init(parsers["init"])
    up, run, join, register = (parsers[name] for name in ("up", "run", "join", "register"))
    which = up.add_mutually_exclusive_group()
    which.add_argument(
        "--node", type=int, action="append", metavar="K", help="start only this node (can be given several times)"
    )
    which.add_argument("--server", action="store_true", help="start only the SuperLink, for nodes at their sites")
    up.add_argument("--detach", action="store_true", help="go on in the background; returns when all is online")
    join.add_argument(
        "--data", default="", metavar="SOURCE", help="this site's data: npz:FILE, folder:DIR or parquet:FILE"
    )
    join.add_argument("--data-dir", default="", metavar="DIR", help="folder with the files of a named data set")
    join.add_argument("--out", metavar="DIR", help="folder of the site (default: ./node-K)")
    join.add_argument("--trust", action="store_true", help="use a site's folder that this account did not make")
    register.add_argument("key", metavar="node-K.pub", help="public key that the site made")
    register.add_argument("--node", type=int, metavar="K", help="number of the node, if the key's name does not say it")
    register.add_argument("--replace", action="store_true", help="replace the key that the node had")
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="set an option for this run only")
    run.add_argument("--simulation", action="store_true", help="run in Flower's simulation, without `up` and keys")


def main(arguments: Namespace) -> int:
    if arguments.action is None:
        raise FedSeqError(f"which action? {', '.join(ACTIONS)}. See: fedseq federation --help")
    for package in NEEDED:
        if importlib.util.find_spec(package) is None:
            raise FedSeqError(f"a federation needs the package {package}. In FedSeq's folder: pip install '.[flower]'")
    from fedseq.cli import federation_actions

    act: Callable[[Namespace], int] = getattr(federation_actions, arguments.action)
    return act(arguments)


def _add_init(parser: ArgumentParser) -> None:
    def add(name: str, metavar: str, help: str, kind: type = str, default: Any = "", **more: Any) -> None:
        shown = f" (default: {default})" if default else ""
        parser.add_argument(name, metavar=metavar, help=help + shown, type=kind, default=default, **more)

    add("--nodes", "N", "number of nodes; each is one client", int, None, required=True)
    add("--host", "NAME", "name or address at which nodes reach the SuperLink", str, "127.0.0.1")
    add("--port", "N", "port of the SuperLink; nodes on its machine use the next ones", int, PORT)
    trust = parser.add_mutually_exclusive_group()
    trust.add_argument("--tls", action="store_true", help="encrypt connections and give each node a key (the default)")
    trust.add_argument("--insecure", action="store_true", help="do neither; only if --host is this machine")
    parser.add_argument("--own-data", action="store_true", help="every node brings its own data")
    add("--server-data", "SOURCE", "with --own-data: the server's test set: npz:FILE, folder:DIR or parquet:FILE")
    add("--node-data", "SOURCE", "with --own-data: data of a node that `up` starts, such as npz:/data/node-{node}.npz")
    add("--hop-deadline", "SECONDS", "skip a client that does not answer within this time", float, 600)
    add("--wait", "SECONDS", "how long a run waits for its nodes to connect", float, 600)
    add("--most-examples", "FACTOR", "a client counts at most this many times the median number of examples", float, 10)
    add("--config", "FILE.yaml", "read options from a file (flags override it)", default=None)
    add_trust(parser, "the file")
    taken = [name for name, found in all_options().items() if not found.simulated]
    add_config_flags(parser, taken, own_rules=True)
