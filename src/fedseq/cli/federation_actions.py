"""What each action of `fedseq federation` does and says."""

from argparse import Namespace
from pathlib import Path

from fedseq.basics.errors import FedSeqError
from fedseq.basics.stopping import INTERRUPTED
from fedseq.cli import options_from
from fedseq.cli.console import make_console
from fedseq.flower.apps.settings import read_settings
from fedseq.flower.deployment import admission, folder, local, runs, site
from fedseq.flower.deployment.federation import LOOPBACK, NAME, Federation, is_this_machine
from fedseq.runs.folder import RunFolder
from fedseq.runs.reading import read_run

SETTINGS = ("hop_deadline", "wait", "most_examples", "server_data")
LAST_RUNS = 5
EVERYWHERE = "0.0.0.0"


def init(arguments: Namespace) -> int:
    settings = read_settings({name: getattr(arguments, name) for name in SETTINGS})
    made = folder.init(
        Path(arguments.folder), arguments.nodes, options_from(arguments), host=arguments.host, port=arguments.port,
        insecure=arguments.insecure, own_data=arguments.own_data, node_data=arguments.node_data, settings=settings,
    )  # fmt: skip
    _say(f"{arguments.folder}: a federation of {made.nodes} nodes, {'TLS and keys' if made.tls else 'INSECURE'}.")
    if made.only_at_sites and made.tls:
        _say(f"start the server:  fedseq federation up {arguments.folder} --server")
        _say(f"send to each site: {Path(arguments.folder) / 'kits' / 'node-K.zip'}")
        _say(f"what comes then:   {Path(arguments.folder) / 'README.md'}")
        return 0
    _say(f"try it here:   fedseq federation up {arguments.folder}")
    _say(
        f"many machines: {Path(arguments.folder) / 'README.md'}"
        if made.tls
        else "many machines need TLS: init without --insecure"
    )
    return 0


def up(arguments: Namespace) -> int:
    federation = _read(arguments)
    if arguments.server:
        started = local.up(federation, [], _say, LOOPBACK if is_this_machine(federation.host) else EVERYWHERE)
    else:
        started = local.up(federation, arguments.node, _say)
    _say(f"{', '.join(started)} online." if started else "all of it runs already.")
    _say(f"train with: fedseq federation run {arguments.folder}   stop with: fedseq federation down {arguments.folder}")
    return 0


def join(arguments: Namespace) -> int:
    out = Path(arguments.out) if arguments.out else None
    found = site.settle(Path(arguments.kit), out, arguments.data, arguments.data_dir, arguments.trust)
    _say(f"{found.folder}: the site of client {found.kit.node} of {found.kit.nodes}.")
    _say(f"send to the operator, once: {found.public_key}")
    _say(f"and let them compare:       {admission.fingerprint(found.public_key)}")
    try:
        site.stay(found, _say)
    except KeyboardInterrupt:
        _say(f"left. Take part again with: fedseq federation join {found.folder}")
    return 0


def register(arguments: Namespace) -> int:
    federation = _read(arguments)
    runs_now = local.answers(federation, federation.port)
    if arguments.replace and not runs_now:
        raise FedSeqError(
            "--replace needs the SuperLink, which has to forget the old key. Start it with: "
            f"fedseq federation up {arguments.folder} --server"
        )
    node = admission.admit(federation, Path(arguments.key), arguments.node, arguments.replace)
    if runs_now:
        admission.register(federation)
    _say(f"node {node} is let in with the key {admission.fingerprint(federation.public_key(node))}")
    left = [str(k) for k in range(federation.nodes) if not federation.public_key(k).exists()]
    nodes = "nodes" if len(left) > 1 else "node"
    _say(f"still without a key: {nodes} {', '.join(left)}" if left else "all nodes have their keys.")
    return 0


def run(arguments: Namespace) -> int:
    federation = _read(arguments)
    work = runs.simulate if arguments.simulation else runs.run
    try:
        work(federation, arguments.set, _say)
    except runs.Followed as stop:
        if not arguments.simulation:
            home = f"FLWR_HOME={federation.folder / 'flwr'}"
            _say(f"the run goes on. Follow it: {home} flwr log {stop} {NAME}")
            _say(f"Stop it:   fedseq federation stop {arguments.folder}")
        return INTERRUPTED
    return 0


def status(arguments: Namespace) -> int:
    federation = _read(arguments)
    running, answers = local.status(federation), local.answers(federation, federation.port)
    here = {name: f"runs as process {process.pid}" for name, process in running.items()}
    elsewhere = admission.presence(federation) if federation.tls and answers else {}
    for node in range(federation.nodes):
        if federation.tls and not federation.public_key(node).exists():
            here.setdefault(local.node_name(node), "has not joined: no key of it is registered")
        elif admission.is_elsewhere(federation, node):
            here[local.node_name(node)] = (
                f"at its site: {elsewhere.get(node, 'unknown, as the SuperLink does not run')}"
            )
    simulation = [local.SIMULATION] if local.SIMULATION in running else []
    for name in (local.SUPERLINK, *map(local.node_name, range(federation.nodes)), *simulation):
        _say(f"{name:<12} {here.get(name, 'does not run')}")
    for found in runs.listed(federation.folder / "flwr")[:LAST_RUNS] if answers else ():
        _say(f"run {found['run-id']}: {found['status']} {found['status-details']}".rstrip())
    out = federation.folder / "run"
    if RunFolder(out).holds_run:
        read = read_run(out, to_continue=True)
        accuracy = f", accuracy {read.evaluations[-1][1]:.4f}" if read.evaluations else ""
        _say(f"{out}: round {read.rounds} of {read.config.rounds}{accuracy}")
    return 0


def stop(arguments: Namespace) -> int:
    stopped = runs.stop(_read(arguments))
    _say(f"stopped: run {', '.join(stopped)}" if stopped else "no run was under way.")
    return 0


def down(arguments: Namespace) -> int:
    stopped = local.down(_read(arguments))
    _say(f"stopped: {', '.join(stopped)}" if stopped else "nothing of it was running.")
    return 0


def _read(arguments: Namespace) -> Federation:
    return Federation.read(Path(arguments.folder))


def _say(text: str) -> None:
    make_console().print(text, markup=False, highlight=False, soft_wrap=True)
