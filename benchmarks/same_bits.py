"""The same bits as before? Small runs of every algorithm, policy and engine, here and in another tree, by their hashes.

    python benchmarks/same_bits.py --tree ../other       # a checkout of another revision; runs it and this one
    python benchmarks/same_bits.py --write before.json   # hashes of this tree, to compare with later
    python benchmarks/same_bits.py --read before.json

Compared are weights.safetensors (and the best model, where one is kept) and metrics.jsonl of every run.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
# What an option is called in trees that do not know its name here: older ones, or newer ones than this file.
OTHER_NAMES: dict[str, str] = {}
RANDOM = {"grouping": "random", "max_clients": 4, "min_samples": 200}
SHORT = {"dataset": "digits", "rounds": 3, "num_clients": 20, "fraction": 0.4, "engine": "serial"}
# fmt: off
RUNS: dict[str, dict[str, Any]] = {
    "fedavg": {"algorithm": "fedavg"},
    "fedprox": {"algorithm": "fedprox"},
    "scaffold": {"algorithm": "scaffold"},
    "scaffold by distance": {"algorithm": "scaffold", "scaffold_option": 2},
    "feddyn": {"algorithm": "feddyn"},
    "relay": {"algorithm": "fedseq+relay", **RANDOM},
    "fedavgm": {"algorithm": "fedavg+fedavgm"},
    "fedadam": {"algorithm": "fedavg+fedadam"},
    "fedyogi": {"algorithm": "fedavg+fedyogi"},
    "ghbm": {"algorithm": "fedavg+ghbm"},
    "fedacg": {"algorithm": "fedprox+fedacg"},
    "fairavg": {"algorithm": "fedseq+fairavg", **RANDOM},
    "median": {"algorithm": "fedavg+median"},
    "trimmed-mean": {"algorithm": "fedavg+trimmed-mean"},
    "averages": {"algorithm": "fedavg+ema"},
    "window": {"algorithm": "fedavg+window"},
    "centralized": {"algorithm": "centralized", "num_clients": None, "fraction": None},
    "fedseq by estimates": {"algorithm": "fedseq", "pretrain_epochs": 1},
    "fedseq by classifiers": {"algorithm": "fedseq+scaffold", "approximator": "classifier-last", "pretrain_epochs": 1},
    "fedseqinter": {"algorithm": "fedseqinter+feddyn", "merge_every": 2, "superclient_epochs": 2, **RANDOM},
    "joined superclients": {"algorithm": "fedseq", "superclients_per_chain": 2, "long_chain_rounds": 2,
                            "fraction": 1.0, **RANDOM},
    "local options": {"algorithm": "fedavg", "momentum": 0.5, "max_grad_norm": 1.0, "augment": "crop-flip",
                      "lr_scheduler": "cosine", "warmup_rounds": 2, "local_epochs": 2},
    "bfloat16, the head": {"algorithm": "fedavg", "precision": "bfloat16", "trainable": "head"},
    "failures": {"algorithm": "fedseq", "client_dropout": 0.3, "deadline": 2.0, "speed_spread": 1.0, **RANDOM},
    "gate": {"algorithm": "scaffold", "attack": "scale:50", "attacker_fraction": 0.2, "update_check_factor": 5.0,
             "client_dropout": 0.1},
    "gate, not finite": {"algorithm": "fedseq", "attack": "nan", "attacker_fraction": 0.2, **RANDOM},
    "gate by exemplars": {"algorithm": "fedseq", "attack": "label-flip", "attacker_fraction": 0.2,
                          "update_check": "exemplars", "rounds": 4, **RANDOM},
    "late attackers": {"algorithm": "fedseq", "attack": "late-label-flip:2", "attacker_fraction": 0.3,
                       "update_check": "none", "rounds": 4, **RANDOM},
    "backdoor": {"algorithm": "fedavg", "attack": "backdoor", "attacker_fraction": 0.3, "update_check": "none"},
    "private visits": {"algorithm": "fedseq", "dp_clip_norm": 0.5, "dp_noise_multiplier": 0.3, "pretrain_epochs": 1,
                       "attack": "sign-flip", "attacker_fraction": 0.1},
    "private rounds": {"algorithm": "fedseq", "dp_clip_norm": 0.5, "dp_noise_multiplier": 0.3,
                       "dp_mechanism": "round", "client_dropout": 0.1, **RANDOM},
    "privacy budget": {"algorithm": "fedavg", "dp_clip_norm": 0.5, "dp_noise_multiplier": 2.0,
                       "dp_target_epsilon": 4.0, "rounds": 8},
    "patience": {"algorithm": "fedavg", "patience": 2, "rounds": 12, "lr": 0.8},
    "target": {"algorithm": "fedseq", "target_accuracy": 0.3, "rounds": 12, **RANDOM},
    "seldom evaluated": {"algorithm": "fedavg", "eval_every": 2},
    "memory in files": {"algorithm": "scaffold", "memory_limit": 0.0},
    "two processes": {"algorithm": "fedseq+scaffold", "engine": "processes", "workers": 2, "client_dropout": 0.1,
                      **RANDOM},
    "processes with patience": {"algorithm": "fedavg", "engine": "processes", "workers": 2, "patience": 1, "rounds": 6,
                                "lr": 0.8, "update_check": "size"},
}
# fmt: on
RESUMED = {
    "resumed": {"algorithm": "scaffold", "update_check": "size", "client_dropout": 0.2, "patience": 9},
    "resumed in privacy": {"algorithm": "fedseq", "dp_clip_norm": 0.5, "dp_noise_multiplier": 0.3, **RANDOM},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, help="a checkout to compare with")
    parser.add_argument("--read", type=Path, help="hashes to compare with")
    parser.add_argument("--write", type=Path, help="where this tree's hashes go")
    parser.add_argument("--only", default="", help="runs whose name holds this text")
    parser.add_argument("--hashes-of-this", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.hashes_of_this:
        say(json.dumps(hashes(asked.only)))
        return
    now = of_tree(HERE.parents[1], asked.only)
    if asked.write:
        asked.write.write_text(json.dumps(now, indent=1))
    if not asked.tree and not asked.read:
        return
    before = json.loads(asked.read.read_text()) if asked.read else of_tree(asked.tree, asked.only)
    names = [name for name in now if name in before]
    for name in names:
        verdict = "same" if before[name] == now[name] else f"CHANGED  {before[name]} -> {now[name]}"
        say(f"{name:26} {verdict}")
    changed = sum(before[name] != now[name] for name in names)
    say(f"{len(names)} runs compared, {changed} changed")
    sys.exit(bool(changed))


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def of_tree(tree: Path, only: str) -> dict[str, str]:
    environment = {**os.environ, "PYTHONPATH": str(tree.resolve() / "src"), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, str(HERE), "--hashes-of-this", "--only", only]
    asked = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, str] = json.loads(asked.stdout.splitlines()[-1])
    return found


def hashes(only: str) -> dict[str, str]:
    """Of the package that this process imports."""
    warnings.simplefilter("ignore")
    runs = {**RUNS, **RESUMED, "federate": {}, "federate, own algorithm": {}}
    with tempfile.TemporaryDirectory() as home:
        return {
            name: of_run(name, options, Path(home) / str(number))
            for number, (name, options) in enumerate(runs.items())
            if only in name
        }


def of_run(name: str, options: dict[str, Any], folder: Path) -> str:
    import fedseq

    if name.startswith("federate"):
        try:
            federate(folder, own="own" in name)
        except fedseq.FedSeqError as error:
            return f"error: {error}"
        return of_folder(folder)
    given = known({**SHORT, **options})
    try:
        if name in RESUMED:
            fedseq.run({**given, "rounds": 2}, folder)
            fedseq.resume(folder, rounds=4)
        else:
            fedseq.run(given, folder)
    except fedseq.FedSeqError as error:
        return f"error: {error}"
    return of_folder(folder)


def of_folder(folder: Path) -> str:
    files = ("weights.safetensors", "weights-best.safetensors", "metrics.jsonl", "superclients.json")
    found = [folder / name for name in files]
    return " ".join(hashlib.sha256(path.read_bytes()).hexdigest()[:10] for path in found if path.exists())


def known(options: dict[str, Any]) -> dict[str, Any]:
    """By the names that this tree has for them; None stands for the tree's default."""
    from fedseq.options import tables
    from fedseq.options.config import OPTIONS

    hyper = {parameter.name for rule in vars(tables).values() if isinstance(rule, dict)
             for row in rule.values() for parameter in getattr(row, "parameters", ())}  # fmt: skip
    names = {*OPTIONS, *hyper}
    other = {**OTHER_NAMES, **{new: old for old, new in OTHER_NAMES.items()}}
    return {
        name if name in names or name not in other else other[name]: value
        for name, value in options.items()
        if value is not None
    }


def federate(folder: Path, own: bool) -> None:
    """A model with BatchNorm and dropout on clients of one's own, in groups; and an algorithm given as a record."""
    import torch
    from torch import nn

    import fedseq
    from fedseq import algorithms

    generator = torch.Generator().manual_seed(5)
    sizes = (9, 4, 1, 6, 12, 3)
    clients = [
        (torch.randn(size, 4, generator=generator), torch.randint(0, 3, (size,), generator=generator)) for size in sizes
    ]

    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))

    rule = algorithms.fedseq(algorithms.feddyn(0.1)) if own else "fedseq+fedprox"
    fedseq.federate(
        network, clients, clients[0], rule, groups=[(0, 3), (4,), (1, 2, 5)], folder=folder, rounds=3, batch_size=4,
        engine="serial", fraction=0.7, seed=11,
    )  # fmt: skip


if __name__ == "__main__":
    main()
