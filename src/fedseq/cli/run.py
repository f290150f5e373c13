"""Run an experiment."""

import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

from fedseq.basics.stopping import INTERRUPTED, Interrupted
from fedseq.cli import add_config_file, add_config_flags, config_from
from fedseq.cli.console import ConsoleReporter, make_console, print_table
from fedseq.options.config_files import names_code, presets, to_yaml
from fedseq.options.ending import best_of
from fedseq.report.formats import TextTable
from fedseq.runs.folder import BEST, RunFolder, refuse_existing_run
from fedseq.runs.reading import Run

EXAMPLE = """fedseq run --dataset digits --alpha 0 --algorithm fedseq --rounds 30
  fedseq run --print-config > my.yaml; fedseq run my.yaml --seed 1
  fedseq run --preset list; fedseq run --preset long-chains-cifar10 --data-dir DIR --seed 1"""


def add_arguments(parser: ArgumentParser) -> None:
    add_config_file(parser)
    parser.add_argument("--out", metavar="DIR", help="run folder (default: a new one in runs/)")
    parser.add_argument("--print-config", action="store_true", help="print all options of the run and stop")
    add_config_flags(parser, own_rules=True)


def main(arguments: Namespace) -> int:
    if arguments.preset == "list":
        print_table(make_console(), TextTable(["preset", "what it is"], list(presets().items()), left=2))
        return 0
    config = config_from(arguments)
    if arguments.print_config:
        make_console().print(to_yaml(config), markup=False, end="")
        return 0
    if arguments.out:
        refuse_existing_run(Path(arguments.out))
    from fedseq.api import experiment

    return run_with_progress(lambda reporter: experiment.run(config, arguments.out, reporter=reporter))


def run_with_progress(work: Callable[[ConsoleReporter], Run]) -> int:
    """Run with live progress; say what to do next, also after an interruption."""
    console = make_console()
    try:
        with ConsoleReporter(console) as reporter:
            run = work(reporter)
    except Interrupted as stop:
        trust = " --trust" if names_code(RunFolder(Path(str(stop))).read_config().options()) else ""
        told = f"interrupted and saved. Continue with: fedseq resume {shlex.quote(str(stop))}{trust}"
        console.print(told, markup=False, soft_wrap=True)  # not folded: a command is copied whole
        return INTERRUPTED
    final = run.final_accuracy()
    if final is not None:
        console.print(
            f"final accuracy {final:.4f} after {run.rounds} rounds (best {run.best_accuracy():.4f})", markup=False
        )
    target = run.config.target_accuracy
    if target is not None and run.rounds < run.config.rounds and run.crossing(target) is not None:
        further = f"fedseq resume {shlex.quote(str(run.folder))} --target-accuracy null"
        console.print(
            f"stopped, as the accuracy is at least {target:g}. To go on: {further}", markup=False, soft_wrap=True
        )
    best = best_of(run.metrics) if run.config.patience is not None else None
    if best is not None:
        waited = run.rounds - best.round
        ended = run.rounds < run.config.rounds and waited >= (run.config.patience or 0)
        why = f"stopped, as nothing better came for {waited} rounds: " if ended else ""
        told = f"{why}the model of round {best.round}, the best, is in {run.folder / BEST}"
        console.print(told, markup=False, soft_wrap=True)
    console.print(f"results in {run.folder}", markup=False, soft_wrap=True)
    told = f"compare runs with: fedseq compare {shlex.quote(str(run.folder))} OTHER"
    console.print(told, markup=False, soft_wrap=True)
    return 0
