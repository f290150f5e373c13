"""Watch a run in the browser while it goes on."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from fedseq.basics.errors import FedSeqError
from fedseq.cli.compare import add_comparison_arguments, bound_from, what_if_from
from fedseq.cli.console import make_console
from fedseq.options.config_files import read_number
from fedseq.options.option import Range

EXAMPLE = "fedseq watch runs/digits-fedseq-alpha0-seed0"
PORTS = Range(lambda value: 0 <= value <= 65535, "from 0 to 65535")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders, or folders that contain them")
    parser.add_argument("--port", default=0, metavar="PORT", help="port on 127.0.0.1 (default: a free one)")
    add_comparison_arguments(parser)


def main(arguments: Namespace) -> None:
    from fedseq.report.page import make_server, summarise, throttled
    from fedseq.runs.reading import read_all

    what_if, bound = what_if_from(arguments), bound_from(arguments)
    port = read_number("--port", arguments.port, PORTS, int)
    paths = [Path(name) for name in arguments.runs]
    for path in paths:
        if not path.is_dir():
            raise FedSeqError(f"there is no folder {path}. List the runs you have with: fedseq ls")
    summary = throttled(lambda: summarise(read_all(paths), what_if, bound, live=True))
    with make_server(summary, port) as server:
        host, port = server.server_address[:2]
        make_console().print(f"watch it at http://{host!s}:{port}/   stop with Ctrl-C", markup=False)
        server.serve_forever(poll_interval=0.2)
