"""What privacy costs: FedAvg and FedSeq at equal epsilon, with the same clients in a round.

    python benchmarks/privacy.py run digits          # every run that results/privacy does not hold yet
    python benchmarks/privacy.py run fashion-mnist
    python benchmarks/privacy.py page                # tables and figure of docs/privacy.md, from these runs

The clip is chosen on a seed of its own at epsilon 8, once for each algorithm and mechanism, and used for every other
epsilon and seed. What it was chosen from stays in tuning.csv.
"""

import argparse
import csv
import tempfile
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

import fedseq
from fedseq.report.costs import run_costs
from fedseq.report.figures import COLOURS, save
from fedseq.report.formats import TextTable, to_markdown
from fedseq.report.series import Stat, stat
from fedseq.runs.publishing import publish
from fedseq.runs.reading import Run, read_all, readable
from pages import DOCS, IMAGES, ROOT, fill

PAGES, RESULTS = (DOCS / "privacy.md",), ROOT / "results/privacy"
DATASETS: dict[str, dict[str, Any]] = {
    "digits": {"num_clients": 200, "fraction": 0.2, "rounds": 20},
    "fashion-mnist": {"num_clients": 1000, "fraction": 0.1, "rounds": 20},
}
# Noise goes on every number that is sent: only the last layer is trained, over random features.
COMMON = {"model": "mlp", "trainable": "head", "alpha": 0, "lr": 0.5, "engine": "serial"}
ALGORITHMS = ("fedavg", "fedseq")
MECHANISMS = ("round", "visit")
EPSILONS = (8, 2)
CLIPS = (0.1, 0.3, 1.0, 3.0)
TUNED_AT, TUNING_SEED, SEEDS = 8, 9, (0, 1, 2)
TUNING = "tuning.csv"
COLUMNS = ("algorithm", "mechanism", "clip", "accuracy")


def run_all(dataset: str) -> None:
    for algorithm, mechanism, clip in product(ALGORITHMS, MECHANISMS, CLIPS):
        tune(dataset, algorithm, mechanism, clip)
    chosen = {
        (algorithm, mechanism): best_clip(dataset, algorithm, mechanism)
        for algorithm, mechanism in product(ALGORITHMS, MECHANISMS)
    }
    for seed, algorithm in product(SEEDS, ALGORITHMS):
        keep(dataset, f"{algorithm}-none-seed{seed}", algorithm=algorithm, seed=seed)
        for epsilon, mechanism in product(EPSILONS, MECHANISMS):
            private = private_options(chosen[algorithm, mechanism], epsilon, mechanism)
            name = f"{algorithm}-{mechanism}-epsilon{epsilon}-seed{seed}"
            keep(dataset, name, algorithm=algorithm, seed=seed, **private)


def private_options(clip: float, epsilon: float, mechanism: str) -> dict[str, Any]:
    return {"dp_clip_norm": clip, "dp_target_epsilon": epsilon, "dp_mechanism": mechanism}


def options_of(dataset: str, **more: Any) -> dict[str, Any]:
    groups = {"grouping": "random"} if more["algorithm"] == "fedseq" else {}
    return {"dataset": dataset, **DATASETS[dataset], **COMMON, **groups, **more}


def keep(dataset: str, name: str, **more: Any) -> None:
    """Run and publish, unless it is there already."""
    if (RESULTS / dataset / name).exists():
        return
    with tempfile.TemporaryDirectory() as scratch:
        run = fedseq.run(options_of(dataset, **more), Path(scratch) / name)
        publish(run, run_costs(run).seconds, RESULTS / dataset)
        print(dataset, name, run.final_accuracy(), flush=True)  # noqa: T201


def tune(dataset: str, algorithm: str, mechanism: str, clip: float) -> None:
    rows = tuning(dataset)
    if any((row["algorithm"], row["mechanism"], float(row["clip"])) == (algorithm, mechanism, clip) for row in rows):
        return
    private = private_options(clip, TUNED_AT, mechanism)
    chosen = options_of(dataset, algorithm=algorithm, seed=TUNING_SEED, **private)
    with tempfile.TemporaryDirectory() as scratch:
        accuracy = fedseq.run(chosen, Path(scratch) / "run").final_accuracy()
    file = RESULTS / dataset / TUNING
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", newline="") as out:
        if not rows:
            csv.writer(out, lineterminator="\n").writerow(COLUMNS)
        csv.writer(out, lineterminator="\n").writerow([algorithm, mechanism, clip, accuracy])
    print(dataset, algorithm, mechanism, clip, accuracy, flush=True)  # noqa: T201


def tuning(dataset: str) -> list[dict[str, str]]:
    file = RESULTS / dataset / TUNING
    return list(csv.DictReader(file.read_text().splitlines())) if file.exists() else []


def best_clip(dataset: str, algorithm: str, mechanism: str) -> float:
    rows = [row for row in tuning(dataset) if (row["algorithm"], row["mechanism"]) == (algorithm, mechanism)]
    return float(max(rows, key=lambda row: float(row["accuracy"]))["clip"])


# --- what is made of the runs ----------------------------------------------------------------------------------------


def runs_of(dataset: str) -> list[Run]:
    return readable(read_all(sorted(file.parent for file in (RESULTS / dataset).glob("*/config.yaml"))))


def accuracy(runs: list[Run], algorithm: str, mechanism: str, epsilon: float | None) -> Stat | None:
    """At the end of the runs; without an epsilon, of those without privacy."""
    return stat(
        run.final_accuracy()
        for run in runs
        if run.config.algorithm == algorithm
        and run.config.dp_target_epsilon == epsilon
        and (epsilon is None or run.config.dp_mechanism == mechanism)
    )


def cost_table() -> str:
    columns = ["data", "noise on", "algorithm", "clip", "without privacy", *(f"epsilon {e}" for e in EPSILONS)]
    rows = []
    for dataset in DATASETS:
        runs = runs_of(dataset)
        for mechanism, algorithm in product(MECHANISMS, ALGORITHMS):
            found = [accuracy(runs, algorithm, mechanism, epsilon) for epsilon in (None, *EPSILONS)]
            cells = [one.text(lambda value: f"{value:.1%}") if one else "-" for one in found]
            rows.append([dataset, f"{mechanism}s", algorithm, f"{best_clip(dataset, algorithm, mechanism):g}", *cells])
    return to_markdown(TextTable(columns, rows, left=3))


def tuning_table() -> str:
    rows = [
        [dataset, f"{mechanism}s", algorithm, *clips]
        for dataset, mechanism, algorithm in product(DATASETS, MECHANISMS, ALGORITHMS)
        if (clips := [
            f"{float(row['accuracy']):.1%}"
            for row in tuning(dataset)
            if (row["algorithm"], row["mechanism"]) == (algorithm, mechanism)
        ])
    ]  # fmt: skip
    columns = ["data", "noise on", "algorithm", *(f"clip {clip:g}" for clip in CLIPS)]
    return to_markdown(TextTable(columns, rows, left=3))


def tables() -> dict[str, str]:
    return {"privacy costs": cost_table(), "privacy tuning": tuning_table()}


def draw(folder: Path) -> Iterator[Path]:
    """Accuracy over epsilon, a panel for each data set; the last place is no privacy at all."""
    shown = (*sorted(EPSILONS), None)
    figure, panels = plt.subplots(1, len(DATASETS), figsize=(9, 4), layout="constrained", sharey=True)
    for panel, dataset in zip(panels, DATASETS, strict=True):
        runs = runs_of(dataset)
        for colour, (algorithm, mechanism) in zip(COLOURS, product(ALGORITHMS, MECHANISMS), strict=False):
            found = [accuracy(runs, algorithm, mechanism, epsilon) for epsilon in shown]
            panel.errorbar(
                range(len(shown)), [one.mean if one else None for one in found],
                [one.std or 0.0 if one else 0.0 for one in found], color=colour, capsize=3, marker="o",
                linestyle="-" if mechanism == "round" else "--", label=f"{algorithm}, noise on {mechanism}s",
            )  # fmt: skip
        panel.axhline(0.1, color="#888888", linestyle=":", linewidth=1)
        panel.set(title=dataset, xlabel="epsilon", ylim=(0, 1))
        panel.set_xticks(range(len(shown)), [str(epsilon or "none") for epsilon in shown])
        panel.yaxis.set_major_formatter("{x:.0%}")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("test accuracy")
    panels[0].legend(loc="upper left", frameon=False, fontsize=8)
    yield save(figure, folder / "privacy-costs.png")


def make_page() -> None:
    fill(PAGES, tables())
    for path in (*PAGES, *draw(IMAGES)):
        print(path.relative_to(ROOT))  # noqa: T201


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run")
    run.add_argument("dataset", choices=DATASETS)
    run.set_defaults(act=lambda given: run_all(given.dataset))
    commands.add_parser("page").set_defaults(act=lambda _: make_page())
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # of runs that end where their budget does
    arguments.act(arguments)


if __name__ == "__main__":
    main()
