"""Pictures, drawn by matplotlib without a display."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")

from matplotlib import pyplot as plt

from fedseq.errors import FedSeqError
from fedseq.report.convergence import SHARES, Bound
from fedseq.report.series import make_series, mean_curve
from fedseq.results import Run

# Okabe and Ito's palette: distinguishable with any kind of colour vision.
FORMATS = (".png", ".pdf", ".svg")
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")


def curves(runs: Sequence[Run], path: Path, bound: Bound | None = None) -> Path:
    """Accuracy over rounds, the mean of a series with its standard deviation, and the targets as dotted lines."""
    federated = [series for series in make_series(runs) if not series.central]
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for colour, series in zip(_cycle(len(federated)), federated, strict=True):
        rounds, means, spread = mean_curve(series.runs)
        if rounds:
            low, high = (np.add(means, sign * np.array(spread)) for sign in (-1, 1))
            axes.plot(rounds, means, color=colour, label=series.label, linewidth=1.8)
            axes.fill_between(rounds, low, high, color=colour, alpha=0.15, linewidth=0)
    if bound:
        for share in (*SHARES, 1.0):
            axes.axhline(share * bound.accuracy, color="#888888", linestyle=":", linewidth=1)
            name = "centralized" if share == 1 and "centralized" in bound.source else f"{share:.0%}"
            axes.annotate(name, (1.0, share * bound.accuracy), xycoords=("axes fraction", "data"), fontsize=8,
                          color="#555555", ha="right", va="bottom")  # fmt: skip
    axes.set(xlabel="round", ylabel="test accuracy", ylim=(0, 1))
    axes.yaxis.set_major_formatter(mpl.ticker.PercentFormatter(1.0))
    axes.legend(loc="lower right", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return _save(figure, path)


def partition(counts: np.ndarray, class_names: Sequence[str], path: Path, title: str) -> Path:
    """Who holds what: a column per client, stacked by class; of many clients, as many as can be seen."""
    shown = counts[:: max(1, -(-len(counts) // 500))]
    figure, axes = plt.subplots(figsize=(10, 4.5), layout="constrained")
    if counts.shape[1] <= 20:
        bottom = np.zeros(len(shown))
        palette = mpl.colormaps["tab20"](np.linspace(0, 1, counts.shape[1]))
        for c, name in enumerate(class_names):
            axes.bar(np.arange(len(shown)), shown[:, c], bottom=bottom, width=1.0, color=palette[c], label=name)
            bottom += shown[:, c]
        axes.set(xlim=(-0.5, len(shown) - 0.5), ylabel="examples")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=8)
    else:
        image = axes.imshow(shown.T, aspect="auto", interpolation="nearest", cmap="viridis")
        figure.colorbar(image, label="examples")
        axes.set(ylabel="class")
    axes.set(
        xlabel="client" if len(shown) == len(counts) else f"client (every {-(-len(counts) // 500)}th)", title=title
    )
    return _save(figure, path)


def _cycle(count: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(count)]


def check_format(path: Path) -> None:
    if path.suffix not in FORMATS:
        raise FedSeqError(f"can't draw into {path}. Give a name that ends in {', '.join(FORMATS)}.")


def _save(figure: "plt.Figure", path: Path) -> Path:
    check_format(path)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path
