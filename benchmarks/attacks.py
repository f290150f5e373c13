# ruff: noqa: T201
"""What attackers do to FedSeq, under the gate on size alone, the one that looks at exemplars, the median, and both.

    python benchmarks/attacks.py              # the tables of docs/attacks.md, from the published runs
    python benchmarks/attacks.py run SCRATCH  # makes the runs that are not published yet: 15 seconds of a core each
    python benchmarks/attacks.py run SCRATCH --dataset cifar10 --data-dir DIR   # the same for CIFAR-10: minutes each
    python benchmarks/attacks.py run SCRATCH --dataset digits-units   # the median over few and many clients
    python benchmarks/attacks.py time         # what the check costs: CPU time of a round with and without it

Runs are made in SCRATCH, and what `fedseq publish` keeps of them is in results/attacks; for a backdoor also how often
its trigger works, as the model is not kept. The tables are made of these folders and of nothing else.
"""

import argparse
import json
import statistics
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch

import fedseq
from attack_tables import (
    ALPHAS,
    ATTACKS,
    RULES,
    TRIGGER,
    accuracy_table,
    final,
    loss_table,
    read_all,
    refusal_table,
    trigger_table,
    units_table,
)
from fedseq.options.resolve import resolve
from fedseq.policies.attackers import with_trigger
from fedseq.report.costs import run_costs
from fedseq.rounds.prepare import named_parts
from fedseq.runs.publishing import publish
from fedseq.training.evaluation import predict
from fedseq.training.reporter import QUIET
from fedseq.training.sgd import build
from pages import DOCS, ROOT, fill

PAGES, RESULTS = (DOCS / "attacks.md", ROOT / "benchmarks/attacks.md"), ROOT / "results/attacks"
SHARE = 0.2  # of the clients attack


class Grid(NamedTuple):
    """Runs of one part of the page; its folder in results/attacks has its name."""

    options: dict[str, Any]
    attacks: tuple[str, ...]
    rules: tuple[str, ...]
    alphas: tuple[str, ...]
    seeds: tuple[int, ...]
    fractions: tuple[float, ...]


DIGITS: dict[str, Any] = {
    "dataset": "digits", "algorithm": "fedseq", "rounds": 30, "num_clients": 50, "eval_every": 3,
    "update_check": "size", "engine": "serial",
}  # fmt: skip
# Three chains of ten clients a round, with the rules of the preset long-chains-cifar10. Superclients at random need no
# pre-training, which would take longer than the rounds.
CIFAR10: dict[str, Any] = {
    "dataset": "cifar10", "algorithm": "fedseq+fedacg+window", "rounds": 60, "num_clients": 500, "fedacg_lambda": 0.9,
    "window": 5, "lr": 0.02, "grouping": "random", "min_samples": 1000, "eval_every": 5, "update_check": "size",
    "engine": "serial",
}  # fmt: skip
GRIDS = {
    "digits": Grid(DIGITS, ATTACKS, tuple(RULES), ALPHAS, (1, 2, 3), (0.5,)),
    "cifar10": Grid(
        CIFAR10, ("none", "sign-flip", "label-flip", "scale:-15"), ("size", "exemplars"), ("0",), (1,), (0.06,),
    ),
    "digits-units": Grid(
        DIGITS | {"algorithm": "fedavg"}, ("none", "sign-flip"), ("size", "median"), ("0.5", "inf"), (1, 2, 3),
        (0.04, 0.06, 0.2, 0.5),
    ),
}  # fmt: skip


def run_all(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    grid = GRIDS[arguments.dataset]
    for seed, alpha, attack, rule, fraction in product(
        arguments.seeds or grid.seeds,
        arguments.alphas or grid.alphas,
        arguments.attacks or grid.attacks,
        arguments.rules or grid.rules,
        grid.fractions,
    ):
        check, server = RULES[rule]
        options = grid.options | {"alpha": alpha, "seed": seed, "update_check": check, "fraction": fraction}
        options |= {"algorithm": options["algorithm"] + server, "data_dir": arguments.data_dir}
        if attack != "none":
            options |= {"attack": attack, "attacker_fraction": SHARE}
        name = f"{attack}-alpha-{alpha}-{rule}-seed-{seed}".replace(":", "_").replace(" ", "-")
        if len(grid.fractions) > 1:
            name += f"-fraction-{fraction}"
        place = RESULTS / arguments.dataset
        if not (place / name).exists():
            run = fedseq.run(options, arguments.scratch / name)
            publish(run, run_costs(run).seconds, place)
            if attack == "backdoor":
                (place / name / TRIGGER).write_text(json.dumps({"trigger_works": trigger_works(run)}) + "\n")
            print(f"{name}: {100 * final(run):.1f} %", flush=True)


def print_time(_: argparse.Namespace) -> None:
    """A run of few rounds is taken from one of more, so that what a run does once does not count."""
    torch.set_num_threads(1)
    times: dict[str, list[float]] = {"size": [], "exemplars": []}
    for _repeat in range(3):
        for check, found in times.items():
            found.append((cpu_time(check, 11) - cpu_time(check, 1)) / 10)
    for check, found in times.items():
        listed = ", ".join(f"{seconds:.3f}" for seconds in found)
        print(f"{check}: {statistics.median(found):.3f} s of CPU time a round (median of {listed})")


def cpu_time(check: str, rounds: int) -> float:
    """Of a run with superclients at random, which makes them without pre-training."""
    options = DIGITS | {
        "fraction": 0.5,
        "alpha": "0",
        "grouping": "random",
        "rounds": rounds,
        "eval_every": rounds,
        "update_check": check,
    }
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


def tables() -> dict[str, str]:
    made = {"attacks": accuracy_table, "points lost": loss_table, "refused": refusal_table, "triggers": trigger_table}
    found = {"units": units_table(list(read_all(RESULTS / "digits-units")))}
    for grid, names in {"digits": tuple(made), "cifar10": ("attacks", "points lost", "refused")}.items():
        runs = list(read_all(RESULTS / grid))
        found |= {f"{grid} {name}": made[name](runs) for name in names}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.set_defaults(act=lambda _: fill(PAGES, tables()))
    commands = parser.add_subparsers()
    commands.add_parser("time").set_defaults(act=print_time)
    run = commands.add_parser("run")
    run.set_defaults(act=run_all)
    run.add_argument("scratch", type=Path)
    run.add_argument("--dataset", choices=GRIDS, default="digits")
    run.add_argument("--data-dir")
    run.add_argument("--alphas", nargs="+")
    run.add_argument("--seeds", nargs="+", type=int)
    run.add_argument("--attacks", nargs="+")
    run.add_argument("--rules", nargs="+", choices=RULES)
    arguments = parser.parse_args()
    arguments.act(arguments)


if __name__ == "__main__":
    main()
