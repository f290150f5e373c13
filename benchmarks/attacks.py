# ruff: noqa: T201
"""What attackers do to FedSeq, with the gate on size alone and with the one that looks at exemplars.

    python benchmarks/attacks.py run results/attacks/digits --alphas 0 0.5 --seeds 1 2 3
    python benchmarks/attacks.py run results/attacks/cifar10 --dataset cifar10 --data-dir DIR --rounds 60 \
        --num-clients 500 --fraction 0.2 --seeds 0 --alphas 0
    python benchmarks/attacks.py table results/attacks/digits

`run` makes the runs that are not there yet, one after another, and keeps of each its config and a thin metrics.jsonl:
accuracies, how many hops counted, and who was refused. `table` reads these folders, and nothing else.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch

import fedseq
from fedseq.options.resolve import resolve
from fedseq.runs.assembly import named_parts
from fedseq.training.evaluation import predict
from fedseq.training.failures import attackers, with_trigger
from fedseq.training.reporter import QUIET
from fedseq.training.sgd import build

ATTACKS = ("none", "sign-flip", "scale:-15", "label-flip")
CHECKS = ("size", "exemplars")
AVERAGED = 3  # evaluations at the end of a run

Cell = tuple[str, str, str, str]  # alpha, attack, share, check


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run")
    run.set_defaults(act=run_all)
    run.add_argument("folder", type=Path)
    run.add_argument("--dataset", default="digits")
    run.add_argument("--data-dir")
    run.add_argument("--algorithm", default="fedseq")
    run.add_argument("--rounds", type=int, default=30)
    run.add_argument("--num-clients", type=int, default=50)
    run.add_argument("--fraction", type=float, default=0.5)
    run.add_argument("--alphas", nargs="+", default=["0", "0.5"])
    run.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    run.add_argument("--attacks", nargs="+", default=ATTACKS)
    run.add_argument("--shares", nargs="+", default=["0.2"])
    run.add_argument("--checks", nargs="+", default=CHECKS, choices=CHECKS)
    table = commands.add_parser("table")
    table.set_defaults(act=print_table)
    table.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    arguments.act(arguments)


def run_all(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    for seed, alpha, check, attack, share in product(
        arguments.seeds, arguments.alphas, arguments.checks, arguments.attacks, arguments.shares
    ):
        trouble = {} if attack == "none" else {"attack": attack, "attackers": share}
        options = {
            "dataset": arguments.dataset, "data_dir": arguments.data_dir, "algorithm": arguments.algorithm,
            "rounds": arguments.rounds, "num_clients": arguments.num_clients, "fraction": arguments.fraction,
            "alpha": alpha, "seed": seed, "eval_every": max(1, arguments.rounds // 10), "gate": True,
            "gate_check": check, "engine": "serial", **trouble,
        }  # fmt: skip
        name = "-".join([attack, *([share] if trouble else []), f"alpha-{alpha}", check, f"seed-{seed}"])
        kept = arguments.folder / name.replace(":", "_")
        if not kept.exists():
            print(f"{name}: {100 * keep(options, kept):.1f} %", flush=True)


def keep(options: dict[str, Any], kept: Path) -> float:
    """The run's config and a thin history in the folder; the accuracy at its end."""
    with tempfile.TemporaryDirectory() as scratch:
        run = fedseq.run(options, Path(scratch) / "run")
        lines = [
            {
                "round": line["round"],
                "accuracy": line["accuracy"],
                "client_updates": line["client_updates"],
                "refused": [hop["client"] for hop in line["skipped"]],
            }
            for line in run.metrics
        ]
        if str(options.get("attack", "")).startswith("backdoor"):
            lines[-1]["backdoor"] = backdoor_success(run)
        made = Path(f"{kept}.{os.getpid()}")
        made.mkdir(parents=True)
        shutil.copy(run.folder / "config.yaml", made)
        (made / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        made.replace(kept)
    return final([line["accuracy"] for line in lines])


def backdoor_success(run: fedseq.Run) -> float:
    """The share of test pictures of other classes that are taken for class 0 once they have the trigger."""
    task = named_parts(resolve(run.config.options()), QUIET).task
    model = build(task)
    model.module.load_state_dict(run.weights(), strict=False)
    others = task.test.y != 0
    marked = type(task.test)(with_trigger(task.test.x[others]), task.test.y[others], task.test.mean, task.test.std)
    fooled = [int((output.argmax(1) == 0).sum()) for output, _ in predict(model, model.vector.clone(), marked)]
    return sum(fooled) / int(others.sum())


def final(accuracies: Iterable[float | None]) -> float:
    return statistics.mean([accuracy for accuracy in accuracies if accuracy is not None][-AVERAGED:])


def print_table(arguments: argparse.Namespace) -> None:
    cells: dict[Cell, list[Sequence[float]]] = {}
    for cell, numbers in read_all(arguments.folder):
        cells.setdefault(cell, []).append(numbers)
    print("| alpha | attack | attackers | check | runs | accuracy % | lowest | honest hops refused % | false ones % |")
    print("|---|---|---|---|---|---|---|---|---|")
    for cell, runs in sorted(cells.items(), key=lambda item: (item[0][0], order(item[0][1]), item[0][1:])):
        accuracies, honest, false, fooled = zip(*runs, strict=True)
        note = f" (trigger works: {100 * statistics.mean(fooled):.0f} %)" if cell[1].startswith("backdoor") else ""
        columns = [
            *cell, str(len(runs)), f"{100 * statistics.mean(accuracies):.1f}{note}", f"{100 * min(accuracies):.1f}",
            f"{100 * statistics.mean(honest):.2f}", f"{100 * statistics.mean(false):.0f}" if cell[2] else "",
        ]  # fmt: skip
        print("| " + " | ".join(columns) + " |")


def order(attack: str) -> int:
    return ATTACKS.index(attack) if attack in ATTACKS else len(ATTACKS)


def read_all(folder: Path) -> Iterator[tuple[Cell, Sequence[float]]]:
    """Of each run: its accuracy, the shares of honest and of attackers' hops refused, the trigger's success."""
    for path in sorted(folder.glob("*/metrics.jsonl")):
        config = fedseq.read_run(path.parent).config
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        bad = set(attackers(config, config.num_clients))
        refused = [client for line in lines for client in line["refused"]]
        false = sum(client in bad for client in refused)
        hops = sum(line["client_updates"] for line in lines) + len(refused)
        # Every client is drawn about as often: the attackers' share of the hops is theirs of the clients.
        of_bad = hops * len(bad) / config.num_clients
        honest = (len(refused) - false) / (hops - of_bad)
        caught = min(1.0, false / of_bad) if bad else float("nan")
        cell = (f"{config.alpha:g}", config.attack or "none", f"{config.attackers:g}" if bad else "", config.gate_check)
        accuracy = final(line["accuracy"] for line in lines)
        yield cell, (accuracy, honest, caught, lines[-1].get("backdoor", float("nan")))


if __name__ == "__main__":
    main()
