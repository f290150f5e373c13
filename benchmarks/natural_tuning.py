"""FedAvg and FedSeq tuned alike on clients that exist, and run with what was chosen; natural.py starts it.

FedAvg and FedSeq get equally many settings, and each of these the same learning rates, on a seed that no table shows.
There are two budgets: rounds, and simulated time. For each of them rates are chosen by the mean of the last three
evaluations within it, and so is the best setting of either; what was chosen is run with other seeds.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedseq.report.convergence import all_costs
from fedseq.report.costs import WhatIf
from fedseq.runs.reading import Run, read_all, readable

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
RATES = (0.02, 0.05, 0.12, 0.3, 0.8)
TUNING_SEED, SEEDS, EVALUATIONS = 100, "1-5", 3
BUDGETS = ("rounds", "seconds")
CENTRAL = "centralized"
EXCHANGED = "--algorithm fedseq+ema --grouping exchange"
OF_THREE = "--max-clients 3 --min-samples 90"  # speakers with thirty utterances each
Found = Mapping[str, Mapping[str, Mapping[str, float]]]  # accuracy by setting, budget and learning rate


@dataclass(frozen=True)
class Setting:
    rounds: int  # enough for both budgets
    options: str


@dataclass(frozen=True)
class Study:
    dataset: str
    options: str
    rounds: int  # the one budget
    seconds: float  # the other, simulated
    settings: Mapping[str, Setting]
    federated: str = ""  # options that training in one place does not know

    def family(self, first: str) -> list[str]:
        """The settings of FedAvg, or of FedSeq."""
        return [name for name in self.settings if name.split("+")[0] == first]

    @property
    def results(self) -> Path:
        return RESULTS / self.dataset

    @property
    def tuning(self) -> Path:
        return RESULTS / f"{self.dataset}-tuning.json"


def settings(own: Mapping[str, Setting], fedavg_rounds: int, epochs: int) -> dict[str, Setting]:
    """Beside what a data set has of its own: FedAvg with more work at each visit takes longer for a round."""
    return {
        "fedavg": Setting(fedavg_rounds, "--algorithm fedavg"),
        "fedavg+ema": Setting(fedavg_rounds, "--algorithm fedavg+ema"),
        "fedavg+fedacg+ema": Setting(fedavg_rounds, "--algorithm fedavg+fedacg+ema"),
        "fedavg+ema-epochs5": Setting(50, "--algorithm fedavg+ema --local-epochs 5"),
        "fedseq": Setting(30, "--algorithm fedseq"),
        "fedseq+ema": Setting(30, EXCHANGED),
        "fedseq+fedacg+ema": Setting(30, "--algorithm fedseq+fedacg+ema --grouping exchange"),
        **own,
        CENTRAL: Setting(epochs, "--algorithm centralized"),
    }


STUDIES = {
    "smartwatch": Study(
        "smartwatch", "--eval-clients 100", 30, 60.0,
        settings(
            {"fedseq+ema-joined2": Setting(30, f"{EXCHANGED} --superclients-per-chain 2")},
            190,
            20,
        ),
    ),
    "vowels": Study(
        "vowels", "--eval-clients 9", 30, 60.0,
        settings(
            {"fedseq+ema-size3": Setting(130, f"{EXCHANGED} {OF_THREE}")}, 190, 30
        ),
        "--fraction 1",
    ),
}  # fmt: skip


def run(study: Study, work: Path) -> None:
    for name in study.settings:
        sweep(study, name, RATES, str(TUNING_SEED), study.settings[name].rounds, work / "tuning" / name)
    found = {name: accuracies(study, work / "tuning" / name) for name in study.settings}
    shutil.rmtree(work / "published", ignore_errors=True)
    for (name, rate), rounds in chosen_runs(study, found).items():
        place = f"{name}-lr{rate}"
        sweep(study, name, [rate], SEEDS, rounds, work / "runs" / place)
        folders = sorted(file.parent for file in (work / "runs" / place).glob("*/config.yaml"))
        if not all(run.finished for run in readable(read_all(folders))):
            sys.exit(f"not all runs in {work / 'runs' / place} are finished. Start again to go on.")
        fedseq("publish", *map(str, folders), "--to", str(work / "published" / place))
    shutil.rmtree(study.results, ignore_errors=True)  # of an earlier time
    shutil.copytree(work / "published", study.results)
    study.tuning.write_text(json.dumps(found, indent=1) + "\n")


def sweep(study: Study, name: str, rates: Sequence[float | str], seeds: str, rounds: int, out: Path) -> None:
    words = ["--dataset", study.dataset, *study.settings[name].options.split(), "--rounds", str(rounds)]
    words += [*study.options.split(), *(study.federated.split() if name != CENTRAL else ())]
    words += ["--lr", ",".join(map(str, rates)), "--seed", seeds, "--eval-every", "5"]
    fedseq("sweep", *words, "--jobs", "1", "--out", str(out))


def fedseq(*words: str) -> None:
    """A sweep whose rate is too high for a method fails in part; what is missing then is found missing."""
    subprocess.run([sys.executable, "-m", "fedseq", *words], check=words[0] != "sweep")


def accuracies(study: Study, folder: Path) -> dict[str, dict[str, float]]:
    """By budget and learning rate."""
    runs = readable(read_all(sorted(file.parent for file in folder.glob("*/config.yaml"))))
    if len(runs) != len(RATES):
        sys.exit(f"{folder} holds {len(runs)} runs and not {len(RATES)}. Start again to go on.")
    if not any(run.finished for run in runs):
        sys.exit(f"no rate lets the runs in {folder} end: their setting is wrong.")
    by_rate = {str(run.config.lr): run for run in sorted(runs, key=lambda run: run.config.lr)}
    return {
        budget: {rate: mean_of_last(run, last_round(study, run, budget)) for rate, run in by_rate.items()}
        for budget in BUDGETS
    }


def last_round(study: Study, run: Run, budget: str) -> int:
    """The last within the budget. Training in one place knows none: it ends where it ends."""
    if run.config.algorithm == CENTRAL:
        return run.config.rounds
    if budget == "rounds":
        return study.rounds
    costs = all_costs([run], WhatIf())[run.folder]
    within = [number for number in costs.rounds if (costs.until(number).seconds or 0.0) <= study.seconds]
    if len(within) < len(costs.rounds):
        return within[-1]
    if run.finished:
        sys.exit(f"{run.folder} ends before {study.seconds} simulated seconds: its setting needs more rounds.")
    return run.config.rounds  # it diverged, and never came so far


def mean_of_last(run: Run, until: int) -> float:
    """0 for a run that diverged before."""
    values = [accuracy for round_, accuracy in run.evaluations if round_ <= until][-EVALUATIONS:]
    return sum(values) / len(values) if run.rounds >= until else 0.0


def best_rate(by_rate: Mapping[str, float]) -> str:
    """The smallest of the best."""
    return min(by_rate, key=lambda rate: (-by_rate[rate], float(rate)))


def best_setting(study: Study, found: Found, first: str, budget: str) -> str:
    return max(study.family(first), key=lambda name: max(found[name][budget].values()))


def shown(study: Study, found: Found, budget: str) -> list[tuple[str, str]]:
    """What a table of a budget shows, settings and their rates: FedAvg and FedSeq as they are, the best of each."""
    names = [name for first in ("fedavg", "fedseq") for name in (first, best_setting(study, found, first, budget))]
    return [(name, best_rate(found[name][budget])) for name in dict.fromkeys([*names, CENTRAL])]


def chosen_runs(study: Study, found: Found) -> dict[tuple[str, str], int]:
    """How many rounds each is run: where only rounds are the budget, no more than these."""
    needed: dict[tuple[str, str], int] = {}
    for budget in BUDGETS:
        for name, rate in shown(study, found, budget):
            full = study.settings[name].rounds
            needed[name, rate] = full if budget == "seconds" or name == CENTRAL else min(full, study.rounds)
    return needed
