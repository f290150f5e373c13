"""Compare runs: final accuracy, rounds to targets, speedup, and what they cost."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from fedseq.cli.console import make_console, print_table
from fedseq.errors import FedSeqError
from fedseq.report.convergence import by_dataset, compare, find_bound
from fedseq.report.costs import Devices
from fedseq.report.reading import broken, read_all, readable
from fedseq.report.tables import comparison_table, cost_table

__all__ = ["compare", "comparison_table", "find_bound"]  # the demo shows its runs in the same way

EXAMPLE = "fedseq compare runs/demo --figure curves.png"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders, or folders that hold some")
    parser.add_argument("--figure", metavar="FILE", help="draw the curves into this .png, .pdf or .svg file")
    add_comparison_arguments(parser)


def add_comparison_arguments(parser: ArgumentParser) -> None:
    """What `compare`, `report` and `watch` take."""
    parser.add_argument("--bound", metavar="ACC", help="centralized accuracy (0..1) that targets are shares of")
    group = parser.add_argument_group("simulated time")
    add = group.add_argument
    add("--client-speed", metavar="STEPS", default=Devices.speed, help="SGD steps a second of a client (default: 10)")
    add("--bandwidth", metavar="BYTES", default=Devices.bandwidth, help="bytes a second of a client (default: 1e6)")
    add("--speed-spread", metavar="SIGMA", default=Devices.spread,
        help="clients' speeds differ lognormally with this sigma (default: 0, all alike)")  # fmt: skip
    add("--speed-seed", metavar="SEED", default=Devices.seed, help="seed of the speeds (default: 0)")


def devices_from(arguments: Namespace) -> Devices:
    return Devices(
        speed=_number("--client-speed", arguments.client_speed),
        bandwidth=_number("--bandwidth", arguments.bandwidth),
        spread=_number("--speed-spread", arguments.speed_spread),
        seed=int(_number("--speed-seed", arguments.speed_seed)),
    )


def bound_from(arguments: Namespace) -> float | None:
    if arguments.bound is None:
        return None
    value = _number("--bound", arguments.bound)
    if not 0 < value <= 1:
        raise FedSeqError(f"--bound must be an accuracy greater than 0 and at most 1, not {arguments.bound}.")
    return value


def _number(name: str, value: str | float) -> float:
    try:
        number = float(value)
    except ValueError:
        raise FedSeqError(f"{name} takes a number, not {value!r}.") from None
    if not 0 <= number < float("inf"):
        raise FedSeqError(f"{name} must be 0 or more, not {value}.")
    return number


def main(arguments: Namespace) -> None:
    devices, given = devices_from(arguments), bound_from(arguments)
    found = read_all(Path(name) for name in arguments.runs)
    runs = readable(found)
    if not runs:
        first = broken(found)[0]
        raise FedSeqError(f"{first.folder}: {first.reason} List the runs you have with: fedseq ls")
    console = make_console()
    for number, (dataset, members) in enumerate(by_dataset(runs).items()):
        bound = find_bound(members, given)
        rows = compare(members, bound, devices)
        if len(by_dataset(runs)) > 1:
            console.print(f"\n{dataset}", markup=False)
        print_table(console, comparison_table(rows, bound, broken(found) if number == 0 else ()))
        if bound:
            print_table(console, cost_table(rows, devices))
    for folder in broken(found):
        console.print(f"{folder.folder} is unreadable: {folder.reason}", markup=False)
    if arguments.figure:
        from fedseq.report.figures import curves

        console.print(f"curves: {curves(runs, Path(arguments.figure), find_bound(runs, given))}", markup=False)
