"""A chain of three hops on digits over a real federation on this machine: seconds and core-seconds of a round.

    python benchmarks/federation.py            # as `fedseq federation up` starts nodes
    python benchmarks/federation.py --plain    # with `flower-supernode`, which starts a process for each message

The nodes' core-seconds are those of all their processes; on an idle machine a round takes little more than the sum, as
hops come one after the other. The first round is left out: data is loaded in it.
"""

import argparse
import itertools
import json
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path

import psutil

from fedseq.flower import app_run, federation_folder, up

NODES = 3
OPTIONS = {
    "dataset": "digits", "algorithm": "fedseq", "grouping": "random", "fraction": 1.0, "min_samples": 1400,
    "max_clients": NODES, "update_check": "none",
}  # fmt: skip


def used(deployment: up.Deployment) -> float:
    """Core-seconds of everything that runs, and of the children that they have waited for."""
    total = 0.0
    for process in [process for child in deployment.children.values() for process in child.family()]:
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.Error:  # it has just ended
            continue
    return total


def watch(deployment: up.Deployment, rounds: int, readings: list[tuple[float, float]]) -> None:
    """The time and what was used, whenever another round is written down."""
    metrics = deployment.federation.folder / "run" / "metrics.jsonl"
    while len(readings) < rounds:
        done = len(metrics.read_bytes().splitlines()) if metrics.exists() else 0
        if done > len(readings):
            readings.append((time.monotonic(), used(deployment)))
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--port", type=int, default=28710)
    arguments = parser.parse_args()
    if arguments.plain:
        ours = up.supernode_words
        up.supernode_words = lambda *words: ["flower-supernode", *ours(*words)[4:]]
    with tempfile.TemporaryDirectory() as place:
        federation = federation_folder.init(
            Path(place) / "fed", NODES, {**OPTIONS, "rounds": arguments.rounds}, port=arguments.port
        )
        readings: list[tuple[float, float]] = []
        deployment = up.Deployment(federation, None, print)
        try:
            deployment.start()
            threading.Thread(target=watch, args=(deployment, arguments.rounds, readings), daemon=True).start()
            app_run.run(federation, [], print)
        finally:
            deployment.stop()
        hops = [json.loads(line)["client_updates"] for line in (federation.folder / "run/metrics.jsonl").open()]
    assert set(hops) == {NODES}
    pairs = list(itertools.pairwise(readings))
    seconds = statistics.median(after[0] - before[0] for before, after in pairs)
    cores = statistics.median(after[1] - before[1] for before, after in pairs)
    load = os.getloadavg()[0]
    told = f"{seconds:.1f} s a round, {cores:.1f} core-seconds (median of {len(pairs)}; load {load:.0f})"
    print(f"{NODES} hops: {told}")  # noqa: T201


if __name__ == "__main__":
    main()
