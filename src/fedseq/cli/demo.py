"""Compare FedAvg, FedSeq and FedSeqInter on embedded data, in under a minute."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from fedseq.cli import INTERRUPTED
from fedseq.cli.compare import compare, comparison_table, find_bound
from fedseq.cli.console import ConsoleReporter, live_progress, make_console, print_table
from fedseq.config import resolve
from fedseq.configfile import coerce, from_mapping
from fedseq.results import new_folder, refuse_existing_run

ALGORITHMS = ("centralized", "fedavg", "fedseq", "fedseqinter")

EXAMPLE = "fedseq demo"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--out", metavar="DIR", help="folder for its runs; by default a new one under runs/")
    parser.add_argument("--rounds", default=60, metavar="T", help="rounds of each algorithm (default: 60)")


def main(arguments: Namespace) -> int:
    from fedseq import experiment
    from fedseq.federation import Interrupted
    from fedseq.report import figures
    from fedseq.report.chart import chart

    rounds = coerce("rounds", arguments.rounds)
    configs = {
        name: resolve(from_mapping({"algorithm": name, **({} if name == "centralized" else {"rounds": rounds})}))
        for name in ALGORITHMS
    }
    folder = Path(arguments.out) if arguments.out else new_folder(Path("runs"), "demo")
    for name in ALGORITHMS:
        refuse_existing_run(folder / name)
    console = make_console()
    console.print(
        "digits: 1437 training pictures dealt to 100 clients by class; a fifth of clients or superclients a round",
        markup=False,
    )
    progress = live_progress(console)
    runs = []
    try:
        with progress:
            for name, config in configs.items():
                reporter = ConsoleReporter(console, verbose=False, progress=progress)
                runs.append(experiment.run(config, folder / name, reporter=reporter))
                if not console.is_terminal:
                    console.print(
                        f"{name}: {runs[-1].rounds} rounds, final accuracy {runs[-1].final_accuracy():.2%}",
                        markup=False,
                    )
    except Interrupted:
        console.print(
            f"interrupted. What is finished is in {folder}; run the demo again to see it whole.", markup=False
        )
        return INTERRUPTED
    bound = find_bound(runs)
    print_table(console, comparison_table(compare(runs, bound), bound))
    console.print(chart({run.config.algorithm: run.evaluations for run in runs[1:]}), markup=False)
    picture = figures.curves(runs, folder / "curves.png", bound)
    console.print(f"\ncurves: {picture}   runs: {folder}", markup=False)
    console.print(
        "go on with: fedseq run --dataset digits --alpha 0.2 --algorithm fedseq+fedprox --rounds 30", markup=False
    )
    return 0
