"""How long grouping takes, how much memory, and how good the groups are. Run: python benchmarks/grouping.py

Every measurement is made in a process of its own with one thread, so that its peak memory is its own. Core-seconds do
not count the making of the input. The quality figures are of 500 simulated clients, like those of the paper's CIFAR-10
experiments: estimates are a softmax of logits that grow with the true class proportions, plus noise.
"""
# ruff: noqa: T201

import multiprocessing
import os
import resource
import time
from collections.abc import Callable

import numpy as np

CLASSES, EXAMPLES = 10, 100
LENET5_CLASSIFIER = 690_048  # weights of its three fully connected layers, without biases


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def simulated_clients(clients: int, alpha: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """True label counts and estimates."""
    rng = np.random.default_rng(seed)
    if alpha == 0:
        proportions = np.eye(CLASSES)[np.arange(clients) % CLASSES]
    else:
        proportions = rng.dirichlet([alpha] * CLASSES, clients)
    counts = rng.multinomial(EXAMPLES, proportions)
    favour, noise = 0.3 * rng.normal(size=CLASSES), 0.4 * rng.normal(size=counts.shape)
    return counts, softmax(6 * counts / EXAMPLES + favour + noise)


def grouped(clients: int, method: str, metric: str | None, alpha: float = 0.5, seed: int = 0) -> tuple[float, dict]:
    """Core-seconds and mean quality."""
    from fedseq.grouping import group_clients, quality

    counts, estimates = simulated_clients(clients, alpha, seed)
    if method == "kmeans":
        import sklearn.cluster  # noqa: F401  # its import is not what is measured
    start = time.process_time()
    grouping = group_clients(
        estimates,
        counts.sum(axis=1),
        method=method,
        metric=metric,
        min_samples=8 * EXAMPLES,
        max_clients=11,
        rng=np.random.default_rng(seed),
        probabilities=True,
        num_classes=CLASSES,
    )
    return time.process_time() - start, quality(counts, grouping.groups).means()


def reduced(clients: int, weights: int) -> tuple[float, dict]:
    from fedseq.grouping import reduce_weights

    rng = np.random.default_rng(0)
    centres = rng.standard_normal((CLASSES, weights), dtype=np.float32)
    rows = np.empty((clients, weights), dtype=np.float32)
    for client in range(clients):
        rows[client] = centres[client % CLASSES] + rng.standard_normal(weights, dtype=np.float32)
    start = time.process_time()
    reduction = reduce_weights(rows)
    return time.process_time() - start, {"components": reduction.kept}


def measure(queue: multiprocessing.Queue, work: Callable, arguments: tuple) -> None:
    seconds, figures = work(*arguments)
    mebibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    queue.put((seconds, mebibytes, figures))


def alone(work: Callable, *arguments: object) -> tuple[float, float, dict]:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=measure, args=(queue, work, arguments))
    process.start()
    result = queue.get()
    process.join()
    return result


def print_speed() -> None:
    print(f"{'':46}{'core-seconds':>14}{'peak MiB':>10}")
    for clients in (500, 100_000):
        for method, metric in (("random", None), ("kmeans", "euclidean"), ("greedy", "kl"), ("exchange", None)):
            seconds, mebibytes, _ = alone(grouped, clients, method, metric)
            print(f"{clients:>7} clients  {method:<9}{metric or '':<20}{seconds:>14.3f}{mebibytes:>10.0f}", flush=True)
    seconds, mebibytes, figures = alone(reduced, 500, LENET5_CLASSIFIER)
    title = f"PCA of 500 x {LENET5_CLASSIFIER}, {figures['components']} components"
    print(f"{title:<46}{seconds:>14.3f}{mebibytes:>10.0f}", flush=True)


def print_quality(seeds: int = 5) -> None:
    from fedseq.options.tables import METRICS

    print(f"\n500 simulated clients, mean of {seeds} seeds: distinct classes at alpha 0, balance ratio at 0.2 and 0.5")
    criteria = [("random", None), ("kmeans", "euclidean"), *(("greedy", metric) for metric in METRICS)]
    for method, metric in [*criteria, ("exchange", None), ("exchange", "kl")]:
        figures = [
            np.mean([grouped(500, method, metric, alpha, seed)[1][figure] for seed in range(seeds)])
            for alpha, figure in ((0.0, "distinct"), (0.2, "balance"), (0.5, "balance"))
        ]
        print(f"{method:<9}{metric or '':<12}" + "".join(f"{figure:>8.3f}" for figure in figures), flush=True)


if __name__ == "__main__":
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # for the processes it starts
    print_speed()
    print_quality()
