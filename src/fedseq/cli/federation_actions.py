"""What each action of `fedseq federation` does and says."""

from argparse import Namespace
from pathlib import Path

from fedseq.basics.errors import FedSeqError
from fedseq.basics.stopping import INTERRUPTED
from fedseq.cli import options_from
from fedseq.cli.console import make_console
from fedseq.flower import app_run, children, federation_folder, registration
from fedseq.flower import join as joining
from fedseq.flower import up as up_here
from fedseq.flower.federation_folder import LOOPBACK, NAME, Federation, is_this_machine
from fedseq.flower.run_options import read_settings
from fedseq.runs.folder import RunFolder
from fedseq.runs.reading import read_run

SETTINGS = ("hop_deadline", "wait", "most_examples")
LAST_RUNS = 5
EVERYWHERE = "0.0.0.0"


def init(arguments: Namespace) -> int:
    settings = read_settings({name: getattr(arguments, name) for name in SETTINGS})
    made = federation_folder.init(
        Path(arguments.folder),
        arguments.nodes,
        options_from(arguments),
        host=arguments.host,
        port=arguments.port,
        insecure=arguments.insecure,
        own_data=arguments.own_data,
        node_data=arguments.node_data,
        server_data=arguments.server_data,
        settings=settings,
    )
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
    if arguments.detach:
        options = ["--server"] if arguments.server else [f"--node={node}" for node in arguments.node or ()]
        _say(up_here.detach(federation, [str(federation.folder), *options]))
        return 0
    listen = EVERYWHERE if arguments.server and not is_this_machine(federation.host) else LOOPBACK
    nodes = [] if arguments.server else arguments.node
    deployment = up_here.Deployment(federation, nodes, _say, listen)
    with up_here.held(federation):
        try:
            deployment.start()
            _say(f"{up_here.READY}: fedseq federation run {arguments.folder}")
            _say(f"Ctrl-C ends all of it; from elsewhere: fedseq federation down {arguments.folder}")
            deployment.stay()
        except KeyboardInterrupt:
            pass
        finally:
            deployment.stop()
    return 0


def join(arguments: Namespace) -> int:
    out = Path(arguments.out) if arguments.out else None
    found = joining.settle(Path(arguments.kit), out, arguments.data, arguments.data_dir, arguments.trust)
    _say(f"{found.folder}: the site of client {found.kit.node} of {found.kit.nodes}.")
    _say(f"send to the operator, once: {found.public_key}")
    _say(f"and let them compare:       {registration.fingerprint(found.public_key)}")
    try:
        joining.stay(found, _say)
    except KeyboardInterrupt:
        _say(f"left. Take part again with: fedseq federation join {found.folder}")
    return 0


def register(arguments: Namespace) -> int:
    federation = _read(arguments)
    runs_now = children.answers(federation, federation.port)
    if arguments.replace and not runs_now:
        raise FedSeqError(
            "--replace needs the SuperLink, which has to forget the old key. Start it with: "
            f"fedseq federation up {arguments.folder} --server"
        )
    node = registration.admit(federation, Path(arguments.key), arguments.node, arguments.replace)
    if runs_now:
        registration.register(federation)
    _say(f"node {node} is let in with the key {registration.fingerprint(federation.public_key(node))}")
    left = [str(k) for k in range(federation.nodes) if not federation.public_key(k).exists()]
    nodes = "nodes" if len(left) > 1 else "node"
    _say(f"still without a key: {nodes} {', '.join(left)}" if left else "all nodes have their keys.")
    return 0


def run(arguments: Namespace) -> int:
    federation = _read(arguments)
    work = app_run.simulate if arguments.simulation else app_run.run
    try:
        work(federation, arguments.set, _say)
    except app_run.Followed as stop:
        if not arguments.simulation:
            home = f"FLWR_HOME={federation.folder / 'flwr'}"
            _say(f"the run goes on. Follow it: {home} flwr log {stop} {NAME}")
            _say(f"Stop it:   fedseq federation stop {arguments.folder}")
        return INTERRUPTED
    return 0


def status(arguments: Namespace) -> int:
    federation = _read(arguments)
    answers = children.answers(federation, federation.port)
    _say(f"{'superlink':<12} {'online' if answers else 'does not run'}")
    states = registration.states(federation) if answers else {}
    for node in range(federation.nodes) if federation.tls else ():
        _say(f"{up_here.node_name(node):<12} {registration.presence(federation, node, states)}")
    if not federation.tls:
        _say(f"{'nodes':<12} {list(states.values()).count('online')} of {federation.nodes} online")
    for found in app_run.listed(federation.folder / "flwr")[:LAST_RUNS] if answers else ():
        _say(f"run {found['run-id']}: {found['status']} {found['status-details']}".rstrip())
    out = federation.folder / "run"
    if RunFolder(out).holds_run:
        read = read_run(out, to_continue=True)
        accuracy = f", accuracy {read.evaluations[-1][1]:.4f}" if read.evaluations else ""
        _say(f"{out}: round {read.rounds} of {read.config.rounds}{accuracy}")
    return 0


def stop(arguments: Namespace) -> int:
    stopped = app_run.stop(_read(arguments))
    _say(f"stopped: run {', '.join(stopped)}" if stopped else "no run was under way.")
    return 0


def down(arguments: Namespace) -> int:
    _say("stopped." if up_here.down(_read(arguments)) else "nothing of it was running.")
    return 0


def _read(arguments: Namespace) -> Federation:
    return Federation.read(Path(arguments.folder))


def _say(text: str) -> None:
    make_console().print(text, markup=False, highlight=False, soft_wrap=True)
