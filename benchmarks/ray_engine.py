"""The same rounds on worker processes and on a local Ray cluster, in turns: what does Ray cost?

The round is that of round.py: 100 of 500 clients with 100 pictures each, LeNet-5, 2 workers. In a second kind of round
each client has one picture, so that nearly all that is left is what the engine costs for each job. Core-seconds are CPU
time of all processes, Ray's own services among them. Of several rounds the best counts: the workers are warm then.
"""

import argparse
import os
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from fedseq.training.examples import Examples
from round import Cost, best, equal_clients, pictures, rounds

ENGINES = ("processes", "ray")
ALGORITHMS = ("fedavg", "fedseq", "feddyn")  # 100 short chains, 12 long ones, 100 with memory both ways


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", default=os.environ.get("FEDSEQ_DATA"), help="folder with CIFAR-10")
    parser.add_argument("--turns", type=int, default=2, help="how often each engine gets its turn")
    parser.add_argument("--rounds", type=int, default=3, help="rounds per turn; the first warms up")
    arguments = parser.parse_args()
    train, _ = pictures(arguments.data)
    clients = equal_clients(500, 100, len(train.x))
    for algorithm in ALGORITHMS:
        compare(f"{algorithm}, one picture", train, [indices[:1] for indices in clients], algorithm, arguments)
    for algorithm in ALGORITHMS:
        compare(algorithm, train, clients, algorithm, arguments)


def compare(
    name: str, train: Examples, clients: Sequence[np.ndarray], algorithm: str, arguments: argparse.Namespace
) -> None:
    costs: dict[str, list[Cost]] = defaultdict(list)
    for _ in range(arguments.turns):
        for engine in ENGINES:
            costs[engine] += rounds(train, clients, algorithm, 2, count=arguments.rounds, engine=engine)[1:]
    report(name, *(best(costs[engine]) for engine in ENGINES))


def report(what: str, processes: Cost, ray: Cost) -> None:
    for name, cost in zip(ENGINES, (processes, ray), strict=True):
        print(f"{what:<22}{name:<11}{cost.cores:6.2f} core-s {cost.wall:6.2f} s", flush=True)  # noqa: T201
    ratio = f"{ray.cores / processes.cores:.2f}x core-s, {ray.wall / processes.wall:.2f}x by the clock"
    print(f"{what:<22}ray over processes: {ratio}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
