"""Run folders written by hand: exactly as a run leaves them, without training."""

import json
from pathlib import Path

from fedseq import __version__
from fedseq.algorithms import build
from fedseq.algorithms.base import signature
from fedseq.options.config_files import to_yaml
from fedseq.options.resolve import resolve

CLIENTS, CLASSES = 8, 4
SUPERCLIENTS = [[0, 1, 2, 3], [4, 5, 6, 7]]


def make_run(
    folder: Path, accuracies, algorithm="fedavg", finished=True, chains=None, examples=10, skipped=(), **options
):
    """A round for each accuracy; None is a round without evaluation."""
    folder.mkdir(parents=True)
    given = {
        "algorithm": algorithm, "rounds": max(1, len(accuracies)), "num_clients": CLIENTS, "speed_spread": 0.0,
        **options,
    }  # fmt: skip
    config = resolve(given, lenient=True)
    (folder / "config.yaml").write_text(to_yaml(config))
    write(folder / "environment.json", {"seed": options.get("seed", 0), "fedseq": __version__, "torch": "2"})
    counts = [[examples if c == client % CLASSES else 0 for c in range(CLASSES)] for client in range(CLIENTS)]
    described = {"fingerprint": "0", "examples": [examples] * CLIENTS, "label_counts": counts}
    write(folder / "clients.json", {**described, "algorithm": signature(build(config))})
    if "fedseq" in algorithm:
        write(folder / "superclients.json", {"superclients": SUPERCLIENTS})
        chains = chains or [SUPERCLIENTS[0], SUPERCLIENTS[1]]
    chains = chains or [[0], [5]]
    lines = [record(i + 1, accuracy, chains, skipped) for i, accuracy in enumerate(accuracies)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    timing = [{"round": line["round"], "train": 1.0, "evaluate": 0.25} for line in lines]
    (folder / "timing.jsonl").write_text("".join(json.dumps(line) + "\n" for line in timing))
    if finished:
        (folder / "weights.safetensors").write_bytes(b"")
    return folder


def record(round_, accuracy, chains, skipped=()):
    updates = sum(map(len, chains))
    line = {
        "round": round_, "accuracy": accuracy, "loss": None, "train_loss": 1.0, "drawn": list(range(len(chains))),
        "units": list(range(len(chains))), "clients": chains, "client_updates": updates,
        "bytes_down": 100 * updates, "bytes_up": 100 * updates, "skipped": list(skipped),
    }  # fmt: skip
    if accuracy is not None:
        line.update(loss=1 - accuracy, per_class_accuracy=[accuracy, accuracy, 0.0, None])
    return line


def write(path, value):
    path.write_text(json.dumps(value))
