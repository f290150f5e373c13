# ruff: noqa: T201
"""What attackers do to FedSeq, under the gate on size alone, the one that looks at exemplars, the median, and both.

    python benchmarks/attacks.py              # the tables of docs/reliability.md, from the published runs
    python benchmarks/attacks.py run SCRATCH  # makes the runs that are not published yet: 10 seconds of a core each
    python benchmarks/attacks.py time         # what the check costs: CPU time of a round with and without it

Runs are made in SCRATCH, and what `fedseq publish` keeps of them is in results/attacks/digits; for a backdoor also how
often its trigger works, as the model is not kept. The tables are made of these folders and of nothing else.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

import fedseq
from fedseq.options.resolve import resolve
from fedseq.report.costs import run_costs
from fedseq.report.formats import TextTable, to_markdown
from fedseq.runs.assembly import named_parts
from fedseq.runs.publishing import publish
from fedseq.training.evaluation import predict
from fedseq.training.failures import attackers, with_trigger
from fedseq.training.reporter import QUIET
from fedseq.training.sgd import build

ROOT = Path(__file__).parents[1]
PAGE, RESULTS = ROOT / "docs/reliability.md", ROOT / "results/attacks/digits"
TRIGGER = "backdoor.json"

ATTACKS = ("none", "sign-flip", "scale:-15", "label-flip", "backdoor", "scale:2.5", "quiet-label-flip:0.3")
RULES = {  # the gate's check, and the algorithm
    "size": ("size", "fedseq"),
    "exemplars": ("exemplars", "fedseq"),
    "median": ("size", "fedseq+median"),
    "exemplars and median": ("exemplars", "fedseq+median"),
}
SETTING: dict[str, Any] = {
    "dataset": "digits", "algorithm": "fedseq", "rounds": 30, "num_clients": 50, "fraction": 0.5, "eval_every": 3,
    "gate": True, "engine": "serial",
}  # fmt: skip
ALPHAS, SEEDS, SHARE = ("0", "0.5"), (1, 2, 3), 0.2
AVERAGED = 3  # evaluations at the end of a run


def run_all(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    for seed, alpha, rule, attack in product(arguments.seeds, arguments.alphas, arguments.rules, arguments.attacks):
        check, algorithm = RULES[rule]
        options = SETTING | {"algorithm": algorithm, "alpha": alpha, "seed": seed, "gate_check": check}
        if attack != "none":
            options |= {"attack": attack, "attackers": SHARE}
        name = f"{attack}-alpha-{alpha}-{rule}-seed-{seed}".replace(":", "_").replace(" ", "-")
        if not (arguments.to / name).exists():
            run = fedseq.run(options, arguments.scratch / name)
            publish(run, run_costs(run).seconds, arguments.to)
            if attack == "backdoor":
                (arguments.to / name / TRIGGER).write_text(json.dumps({"trigger_works": trigger_works(run)}) + "\n")
            print(f"{name}: {100 * final(run):.1f} %", flush=True)


def print_time(_: argparse.Namespace) -> None:
    """A run of few rounds is taken from one of more, so that what a run does once does not count."""
    torch.set_num_threads(1)
    times: dict[str, list[float]] = {"size": [], "exemplars": []}
    for _ in range(3):
        for check, found in times.items():
            found.append((cpu_time(check, 11) - cpu_time(check, 1)) / 10)
    for check, found in times.items():
        listed = ", ".join(f"{seconds:.3f}" for seconds in found)
        print(f"{check}: {statistics.median(found):.3f} s of CPU time a round (median of {listed})")


def cpu_time(check: str, rounds: int) -> float:
    """Of a run with superclients at random, which makes them without pre-training."""
    options = SETTING | {"alpha": "0", "method": "random", "rounds": rounds, "eval_every": rounds, "gate_check": check}
    with tempfile.TemporaryDirectory() as scratch:
        began = time.process_time()
        fedseq.run(options, Path(scratch) / "run")
        return time.process_time() - began


def trigger_works(run: fedseq.Run) -> float:
    """The share of test pictures of other classes that are taken for class 0 once they have the trigger."""
    task = named_parts(resolve(run.config.options()), QUIET).task
    model = build(task)
    model.module.load_state_dict(run.weights(), strict=False)
    others = task.test.y != 0
    marked = type(task.test)(with_trigger(task.test.x[others]), task.test.y[others], task.test.mean, task.test.std)
    fooled = [int((output.argmax(1) == 0).sum()) for output, _ in predict(model, model.vector.clone(), marked)]
    return sum(fooled) / int(others.sum())


def final(run: fedseq.Run) -> float:
    return statistics.mean([accuracy for _, accuracy in run.evaluations][-AVERAGED:])


@dataclass(frozen=True)
class Kept:
    """What a published run tells."""

    alpha: str
    attack: str
    rule: str
    seed: int
    accuracy: float
    honest_refused: float  # of all honest hops
    false_refused: float  # of the attackers'
    trigger_works: float | None


def read_all(folder: Path = RESULTS) -> Iterator[Kept]:
    for path in sorted(folder.glob("*/config.yaml")):
        run = fedseq.read_run(path.parent)
        config = run.config
        bad = set(attackers(config, config.num_clients))
        # Runs that were kept before there was `fedseq publish` name the clients alone.
        refused = [client for line in run.metrics for client in line.get("refused", ())]
        refused += [hop["client"] for line in run.metrics for hop in line.get("skipped", ())]
        false = sum(client in bad for client in refused)
        hops = sum(line["client_updates"] for line in run.metrics) + len(refused)
        # Every client is drawn about as often: the attackers' share of the hops is theirs of the clients.
        of_bad = hops * len(bad) / config.num_clients
        trigger = path.parent / TRIGGER
        yield Kept(
            f"{config.alpha:g}",
            config.attack or "none",
            next(rule for rule, made in RULES.items() if made == (config.gate_check, config.algorithm)),
            config.seed,
            final(run),
            (len(refused) - false) / (hops - of_bad),
            min(1.0, false / of_bad) if bad else 0.0,
            json.loads(trigger.read_text())["trigger_works"] if trigger.exists() else None,
        )


def accuracy_table(runs: Sequence[Kept]) -> str:
    """A row for each attack: the mean over seeds, and the lowest."""
    return _table(runs, lambda cell: _mean_and_lowest([100 * run.accuracy for run in cell]))


def refusal_table(runs: Sequence[Kept]) -> str:
    """Honest and attackers' hops that were refused, in percent."""

    def shares(cell: Sequence[Kept]) -> str:
        honest = 100 * statistics.mean(run.honest_refused for run in cell)
        false = 100 * statistics.mean(run.false_refused for run in cell)
        return f"{honest:.2f}" if cell[0].attack == "none" else f"{honest:.2f} / {false:.0f}"

    return _table(runs, shares)


def trigger_table(runs: Sequence[Kept]) -> str:
    """How often the trigger works, in percent of the pictures: the mean over seeds, and each."""

    def works(cell: Sequence[Kept]) -> str:
        found = [100 * run.trigger_works for run in cell if run.trigger_works is not None]
        return f"{statistics.mean(found):.0f} ({', '.join(f'{share:.0f}' for share in found)})"

    return _table([run for run in runs if run.trigger_works is not None], works)


def loss_table(runs: Sequence[Kept]) -> str:
    """Points below the run of the same seed without attackers and without the check: their mean, and each."""
    clean = {(run.alpha, run.seed): run.accuracy for run in runs if (run.attack, run.rule) == ("none", "size")}

    def below(cell: Sequence[Kept]) -> str:
        found = [100 * (clean[run.alpha, run.seed] - run.accuracy) for run in cell if (run.alpha, run.seed) in clean]
        return f"{statistics.mean(found):.1f} ({', '.join(f'{points:.1f}' for points in found)})" if found else "-"

    return _table([run for run in runs if (run.attack, run.rule) != ("none", "size")], below)


def _table(runs: Sequence[Kept], text: Callable[[Sequence[Kept]], str]) -> str:
    """A row for each alpha and attack that was run, a column for each rule."""
    rules = [rule for rule in RULES if any(run.rule == rule for run in runs)]
    rows = []
    for alpha, attack in product(ALPHAS, ATTACKS):
        cells = [[run for run in runs if (run.alpha, run.attack, run.rule) == (alpha, attack, rule)] for rule in rules]
        if any(cells):
            rows.append([alpha, attack, *(text(cell) if cell else "-" for cell in cells)])
    return to_markdown(TextTable(["alpha", "attack", *rules], rows))


def _mean_and_lowest(accuracies: Sequence[float]) -> str:
    fewer = "" if len(accuracies) == len(SEEDS) else f", {len(accuracies)} of {len(SEEDS)} seeds"
    return f"{statistics.mean(accuracies):.1f} ({min(accuracies):.1f}){fewer}"


def write_page(page: Path) -> None:
    """Fill what stands between the markers."""
    runs = list(read_all())
    text = page.read_text()
    tables = {"attacks": accuracy_table, "points lost": loss_table, "refused": refusal_table, "triggers": trigger_table}
    for name, table in tables.items():
        text = insert(text, name, table(runs))
    page.write_text(text)


def insert(page: str, name: str, text: str) -> str:
    begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->"
    before, rest = page.split(begin)
    return before + begin + text + end + rest.split(end)[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.set_defaults(act=lambda _: write_page(PAGE))
    commands = parser.add_subparsers()
    commands.add_parser("time").set_defaults(act=print_time)
    run = commands.add_parser("run")
    run.set_defaults(act=run_all)
    run.add_argument("scratch", type=Path)
    run.add_argument("--to", type=Path, default=RESULTS)
    run.add_argument("--alphas", nargs="+", default=ALPHAS)
    run.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    run.add_argument("--attacks", nargs="+", default=ATTACKS)
    run.add_argument("--rules", nargs="+", default=RULES, choices=RULES)
    arguments = parser.parse_args()
    arguments.act(arguments)


if __name__ == "__main__":
    main()
