"""Run one experiment."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

from fedseq.cli import INTERRUPTED, add_config_flags, config_from
from fedseq.cli.console import ConsoleReporter, make_console
from fedseq.config import resolve
from fedseq.configfile import to_yaml
from fedseq.results import Run, refuse_existing_run

EXAMPLE = """fedseq run --dataset digits --alpha 0 --algorithm fedseq --rounds 30
  fedseq run --print-config > my.yaml; fedseq run my.yaml --seed 1"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("config", nargs="?", metavar="CONFIG.yaml", help="options from a file; flags go over it")
    parser.add_argument("--out", metavar="DIR", help="run folder; by default a new one under runs/")
    parser.add_argument("--print-config", action="store_true", help="print the resolved config and stop")
    parser.add_argument("--tensorboard", action="store_true", help="write TensorBoard event files while it runs")
    add_config_flags(parser)


def main(arguments: Namespace) -> int:
    config = resolve(config_from(arguments))
    if arguments.print_config:
        make_console().print(to_yaml(config), markup=False, end="")
        return 0
    if arguments.out:
        refuse_existing_run(Path(arguments.out))
    from fedseq import experiment
    from fedseq.report.tensorboard import with_events

    wanted = arguments.tensorboard
    return watch(lambda reporter: experiment.run(config, arguments.out, reporter=with_events(reporter, wanted)))


def watch(work: Callable[[ConsoleReporter], Run]) -> int:
    """Run with live progress; say what to do next, also after an interruption."""
    from fedseq.federation import Interrupted

    console = make_console()
    try:
        with ConsoleReporter(console) as reporter:
            run = work(reporter)
    except Interrupted as stop:
        console.print(f"interrupted and saved. Continue with: fedseq resume {stop}", markup=False)
        return INTERRUPTED
    final = run.final_accuracy()
    if final is not None:
        console.print(
            f"final accuracy {final:.4f} after {run.rounds} rounds (best {run.best_accuracy():.4f})", markup=False
        )
    console.print(f"results in {run.folder}. Compare runs with: fedseq compare {run.folder} OTHER", markup=False)
    return 0
