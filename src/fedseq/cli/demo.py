"""Compare FedAvg and FedSeq on small embedded data in a minute."""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedseq.basics.errors import unknown
from fedseq.basics.stopping import INTERRUPTED, Interrupted
from fedseq.cli.console import ConsoleReporter, live_progress, make_console, print_table
from fedseq.options.config_files import coerce
from fedseq.options.resolve import resolve
from fedseq.report.convergence import compare, find_bound
from fedseq.report.run_tables import comparison_table
from fedseq.runs.folder import new_folder, refuse_existing_run

Curve = Sequence[tuple[int, float]]
MARKS = "ox+*#@%&"


@dataclass(frozen=True)
class Demo:
    what: str
    go_on: str
    algorithms: tuple[str, ...] = ("centralized", "fedavg", "fedseq", "fedseqinter")
    options: dict[str, Any] = field(default_factory=dict)
    own: dict[str, dict[str, Any]] = field(default_factory=dict)  # options of an algorithm


DEMOS = {
    "digits": Demo(
        "digits: 1437 training pictures dealt to 100 clients by class; a fifth of clients or superclients a round",
        "fedseq run --dataset digits --alpha 0.2 --algorithm fedseq+fedprox --rounds 30",
    ),
    "smartwatch": Demo(
        "smartwatch: 98 clients, each a session of one person doing one exercise; tested on three people whom nobody "
        "trains on; a fifth of clients or superclients a round",
        "fedseq run --dataset smartwatch --clients-by person --algorithm fedavg --rounds 60",
        ("centralized", "fedavg", "fedavg+fedacg+ema", "fedseq", "fedseq+fedacg+ema"),
        {"eval_clients": 100},
        {
            "centralized": {"lr": 0.12},
            "fedavg": {"lr": 0.3},
            "fedavg+fedacg+ema": {"lr": 0.12},
            "fedseq": {"lr": 0.05},
            "fedseq+fedacg+ema": {"lr": 0.05, "grouping": "exchange"},
        },  # of five rates for each, the best after 30 rounds: docs/examples/smartwatch.md
    ),
}

EXAMPLE = """fedseq demo
  fedseq demo --dataset smartwatch"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--dataset", default="digits", metavar="|".join(DEMOS), help="data set to show it on (default: digits)"
    )
    parser.add_argument("--out", metavar="DIR", help="folder for the runs (default: a new one in runs/)")
    parser.add_argument("--rounds", default=60, metavar="T", help="rounds of each algorithm (default: 60)")


def main(arguments: Namespace) -> int:
    from fedseq.api import experiment
    from fedseq.report import figures

    if arguments.dataset not in DEMOS:
        raise unknown("demo", arguments.dataset, DEMOS)
    demo = DEMOS[arguments.dataset]
    rounds = coerce("rounds", arguments.rounds)
    asked = {"dataset": arguments.dataset, **demo.options}
    lengths = {name: {} if name == "centralized" else {"rounds": rounds} for name in demo.algorithms}
    configs = {
        name: resolve({**asked, **demo.own.get(name, {}), **length, "algorithm": name})
        for name, length in lengths.items()
    }
    named = "demo" if arguments.dataset == "digits" else f"demo-{arguments.dataset}"
    folder = Path(arguments.out) if arguments.out else new_folder(Path("runs"), named)
    for name in demo.algorithms:
        refuse_existing_run(folder / name)
    console = make_console()
    console.print(demo.what, markup=False)
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
    console.print(f"go on with: {demo.go_on}", markup=False)
    return 0


def chart(curves: Mapping[str, Curve], width: int = 72, height: int = 16) -> str:
    """Accuracy (0..1) over rounds in a terminal, one mark a curve; later curves are drawn over earlier ones."""
    last = max((round_ for curve in curves.values() for round_, _ in curve), default=1)
    grid = [[" "] * width for _ in range(height)]
    for mark, curve in zip(MARKS, curves.values(), strict=False):
        for round_, accuracy in curve:
            column = (round_ - 1) * (width - 1) // max(last - 1, 1)
            grid[height - 1 - round(accuracy * (height - 1))][column] = mark
    percent = [f"{100 * (height - 1 - row) // (height - 1):3d}%" if row % 5 == 0 else "    " for row in range(height)]
    lines = [f"{label} |{''.join(cells).rstrip()}" for label, cells in zip(percent, grid, strict=True)]
    legend = "   ".join(f"{mark} {name}" for mark, name in zip(MARKS, curves, strict=False))
    return "\n".join([*lines, f"     +{'-' * width}", f"      1{f'round {last}':>{width - 1}}", f"      {legend}"])
