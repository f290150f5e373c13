"""Pictures, drawn by matplotlib without a display."""

import io
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.text import Text

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import write_atomically
from fedseq.report.convergence import SHARES, Bound
from fedseq.report.series import make_series, mean_curve, mean_epsilon
from fedseq.runs.reading import Run

FORMATS = (".png", ".pdf", ".svg")
FEW = 4  # curves that leave room for a legend among them
# Okabe and Ito's palette: distinguishable with any kind of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442", "#000000")


def curves(runs: Sequence[Run], path: Path, bound: Bound | None = None, over: str = "round") -> Path:
    """Accuracy over rounds or epsilon, the mean of a series with its standard deviation, and dotted targets."""
    federated = [series for series in make_series(runs) if not series.central]
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for colour, series in zip(cycle(COLOURS), federated, strict=False):
        rounds, means, spread = mean_curve(series.runs)
        at: Sequence[float] = mean_epsilon(series.runs, rounds) if over == "epsilon" else rounds
        if at and len(at) == len(means):  # without a promise there is no epsilon
            low, high = (np.add(means, sign * np.array(spread)) for sign in (-1, 1))
            axes.plot(at, means, color=colour, label=series.label, linewidth=1.8)
            axes.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
    if over == "epsilon" and not axes.lines:
        raise FedSeqError("none of these runs promises an epsilon, so there is nothing to draw over it.")
    if bound:
        for share in (*SHARES, 1.0):
            axes.axhline(share * bound.accuracy, color="#888888", linestyle=":", linewidth=1)
            name = f"{100 * share:.0f} % of bound" if share < 1 else "centralized" if bound.central else "bound"
            axes.annotate(
                name,
                (1.01, share * bound.accuracy),
                xycoords=("axes fraction", "data"),
                fontsize=8,
                color="#555555",
                ha="left",
                va="center",
            )  # fmt: skip - beside the curves, not under them
    axes.set(xlabel=over, ylabel="test accuracy", ylim=(0, 1))
    axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(integer=over == "round", steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(mpl.ticker.PercentFormatter(1.0))
    drawn = len(axes.get_legend_handles_labels()[0])
    if drawn > FEW:  # above the curves, which would be under it
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False, fontsize=9)
    elif drawn:
        axes.legend(loc="best", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return save(figure, path)


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
    return save(figure, path)


def save(figure: Figure, path: Path) -> Path:
    if path.suffix not in FORMATS:
        raise FedSeqError(f"cannot draw into {path}. Give a name that ends in {', '.join(FORMATS)}.")
    for text in figure.findobj(Text):
        text.set_parse_math(False)  # a class or a folder may be called $10
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix[1:], dpi=150)
    plt.close(figure)
    write_atomically(path, drawn.getvalue())  # not through a link that a folder from elsewhere may hold
    return path
