"""Clients that exist: FedAvg and FedSeq tuned alike on smartwatch and vowels, run, published and told in docs.

    python benchmarks/natural.py run smartwatch --work DIR   # tunes, runs and publishes; stopped, it goes on in DIR
    python benchmarks/natural.py run vowels --work DIR
    python benchmarks/natural.py                             # the page's tables and figure, of what is published

Every method gets the same learning rates on a seed that no table shows. A rate is chosen by the mean of the last three
evaluations, once at the round where methods are compared and once at the end, which is about the same simulated time
for all; where the two differ, both rates are run and shown.
"""

import json
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedseq.report.budget import budget_table
from fedseq.report.convergence import all_costs, find_bound
from fedseq.report.costs import WhatIf
from fedseq.report.figures import curves
from fedseq.report.formats import TextTable, to_markdown
from fedseq.runs.reading import Run, read_all, readable

ROOT = Path(__file__).parents[1]
PAGE, IMAGES, RESULTS = ROOT / "docs/examples/smartwatch.md", ROOT / "docs/images", ROOT / "results"
RATES = (0.05, 0.1, 0.2, 0.4, 0.8)
TUNING_SEED, SEEDS, EVALUATIONS = 100, "1-5", 3


@dataclass(frozen=True)
class Study:
    dataset: str
    options: tuple[str, ...]
    rounds: int  # at which methods are compared
    fedavg_rounds: int  # in which the slowest FedSeq run's simulated time passes
    epochs: int  # of centralized training

    @property
    def methods(self) -> dict[str, tuple[int, tuple[str, ...]]]:
        """How many rounds each is run, and its own options."""
        return {
            "fedavg": (self.fedavg_rounds, ()),
            "fedavg+ema": (self.fedavg_rounds, ()),
            "fedseq": (self.rounds, ()),
            "fedseq+ema": (self.rounds, ("--method", "exchange")),
            "centralized": (self.epochs, ()),
        }

    @property
    def runs(self) -> list[Run]:
        return readable(read_all(sorted(file.parent for file in (RESULTS / self.dataset).glob("*/config.yaml"))))

    @property
    def tuning(self) -> Path:
        return RESULTS / f"{self.dataset}-tuning.json"


STUDIES = {
    study.dataset: study
    for study in (
        Study("smartwatch", ("--evaluate-clients", "100"), rounds=40, fedavg_rounds=300, epochs=20),
        Study("vowels", ("--evaluate-clients", "9", "--fraction", "1"), rounds=30, fedavg_rounds=240, epochs=30),
    )
}


def run(study: Study, work: Path) -> None:
    for method in study.methods:
        sweep(study, method, RATES, str(TUNING_SEED), work / "tuning" / method)
    found = {method: accuracies(study, method, work / "tuning" / method) for method in study.methods}
    for method, by_round in found.items():
        chosen = sorted({best(by_rate) for by_rate in by_round.values()})
        sweep(study, method, chosen, SEEDS, work / "runs" / method)
    folders = sorted(file.parent for file in (work / "runs").glob("*/*/config.yaml"))
    if not all(run.finished for run in readable(read_all(folders))):
        sys.exit(f"not all runs in {work} are finished. Start again to go on.")
    shutil.rmtree(RESULTS / study.dataset, ignore_errors=True)  # of an earlier time
    fedseq("publish", *map(str, folders), "--to", str(RESULTS / study.dataset))
    study.tuning.write_text(json.dumps(found, indent=1) + "\n")


def sweep(study: Study, method: str, rates: tuple[float, ...] | list[float], seeds: str, out: Path) -> None:
    rounds, own = study.methods[method]
    # Workers would wait for each other: a client here is a few milliseconds of work.
    words = ["--dataset", study.dataset, "--algorithm", method, "--rounds", str(rounds), *own, *study.options]
    words += ["--lr", ",".join(map(str, rates)), "--seed", seeds, "--eval-every", "5", "--jobs", "1"]
    fedseq("sweep", *words, "--out", str(out))


def fedseq(*words: str) -> None:
    """A sweep whose rate is too high for a method fails in part; what is missing then is found missing."""
    subprocess.run([sys.executable, "-m", "fedseq", *words], check=words[0] != "sweep")


def accuracies(study: Study, method: str, folder: Path) -> dict[int, dict[float, float]]:
    """By the round up to which is looked, and by learning rate."""
    runs = readable(read_all(sorted(file.parent for file in folder.glob("*/config.yaml"))))
    if len(runs) != len(RATES):
        sys.exit(f"{folder} holds {len(runs)} runs and not {len(RATES)}. Start again to go on.")
    rounds = {min(study.rounds, study.methods[method][0]), study.methods[method][0]}
    return {until: {run.config.lr: mean_of_last(run, until) for run in runs} for until in sorted(rounds)}


def mean_of_last(run: Run, until: int) -> float:
    """0 for a run that diverged before."""
    values = [accuracy for round_, accuracy in run.evaluations if round_ <= until][-EVALUATIONS:]
    return sum(values) / len(values) if run.rounds >= until else 0.0


def best(by_rate: Mapping[float, float]) -> float:
    """The smallest of the best."""
    return min(by_rate, key=lambda rate: (-by_rate[rate], rate))


def tuning_table(study: Study) -> str:
    found = json.loads(study.tuning.read_text())
    rows = []
    for method, by_round in found.items():
        for until, by_rate in by_round.items():
            top = str(best({float(rate): accuracy for rate, accuracy in by_rate.items()}))
            cells = (f"{accuracy:.1%}" + (", chosen" if rate == top else "") for rate, accuracy in by_rate.items())
            rows.append([method, until, *cells])
    rates = next(iter(next(iter(found.values())).values()))
    return to_markdown(TextTable(["algorithm", "round", *(f"rate {rate}" for rate in rates)], rows))


def write_page(page: Path) -> None:
    """Fill what stands between the markers of each data set's tables."""
    text = page.read_text()
    for study in STUDIES.values():
        runs = study.runs
        text = insert(text, study.dataset, to_markdown(budget_table(runs, all_costs(runs, WhatIf()), study.rounds)))
        if study.tuning.exists():
            text = insert(text, f"{study.dataset} tuning", tuning_table(study))
    page.write_text(text)


def insert(page: str, name: str, text: str) -> str:
    begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->"
    before, rest = page.split(begin)
    return before + begin + text + end + rest.split(end)[1]


def draw(folder: Path) -> Iterator[Path]:
    runs = STUDIES["smartwatch"].runs
    yield curves(runs, folder / "smartwatch.png", find_bound(runs))


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", nargs="?", choices=["run"])
    parser.add_argument("dataset", nargs="?", choices=STUDIES)
    parser.add_argument("--work", type=Path, default=Path("runs/natural"), help="folder for runs and tuning")
    given = parser.parse_args()
    if given.what:
        if given.dataset is None:
            parser.error("say which: smartwatch or vowels")
        run(STUDIES[given.dataset], given.work / given.dataset)
    write_page(PAGE)
    for path in (PAGE, *draw(IMAGES)):
        print(path.relative_to(ROOT))  # noqa: T201


if __name__ == "__main__":
    main()
