"""Pictures, drawn by matplotlib without a display."""

import io
import warnings
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import write_atomically
from fedseq.report.convergence import SHARES, Bound
from fedseq.report.costs import AS_RECORDED, AXES, ROUND, mean_spent
from fedseq.report.formats import check_picture
from fedseq.report.series import Series, make_series, mean_curve
from fedseq.runs.reading import Run
from fedseq.simulation.clock import WhatIf

FEW = 4  # curves that leave room for a legend among them
FAR_APART = 10  # times: of curves that end so far apart, the short ones are seen on a logarithmic axis only
# Okabe and Ito's palette: distinguishable with any kind of colour vision. Yellow is hard to see on white: the last one.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
LINES = ("solid", "dashed", "dotted")


def look(number: int) -> tuple[str, str]:
    """Colour and line of the curve with this number: where all colours are used, they come again with another line."""
    return COLOURS[number % len(COLOURS)], LINES[number // len(COLOURS) % len(LINES)]


def curves(
    runs: Sequence[Run], path: Path, bound: Bound | None = None, over: str = ROUND, what_if: WhatIf = AS_RECORDED
) -> Path:
    """Accuracy over rounds or what they cost, the mean of a series with its standard deviation, and dotted targets."""
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    axis, drawn, untold = AXES[over], [], []
    for number, series in enumerate(one for one in make_series(runs) if not one.central):
        label = _label(series, runs)
        for together in _drawn_together(series):
            rounds, means, spread = mean_curve(together)
            at = mean_spent(together, rounds, over, what_if)
            if at:
                drawn.append((look(number), label, at, means, spread))
                label = ""  # of several seeds one stands in the legend
            elif axis.untold:
                untold.append(series.label)
    if untold and not drawn:
        raise FedSeqError(f"none of these runs {axis.untold}, so there is nothing to draw over it.")
    if untold:
        warnings.warn(f"no curve of {', '.join(dict.fromkeys(untold))}: not every run {axis.untold}.", stacklevel=2)
    ends = [max(at) for _, _, at, _, _ in drawn] or [0]
    unit = axis.unit(max(ends))
    axes.set_xlabel(f"{axis.title} ({unit})" if unit else axis.title)
    if over != ROUND and max(ends) > FAR_APART * min(ends):
        axes.set_xscale("log", subs=range(2, 10))
        axes.xaxis.set_major_locator(mpl.ticker.LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(mpl.ticker.StrMethodFormatter("{x:g}"))
    else:
        axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(integer=over == ROUND, steps=[1, 2, 5, 10]))
    for (colour, line), label, at, means, spread in drawn:
        low, high = (np.add(means, sign * np.array(spread)) for sign in (-1, 1))
        axes.plot(
            np.divide(at, axis.units[unit]), means, color=colour, linestyle=line, label=label or None, linewidth=1.8
        )
        axes.fill_between(np.divide(at, axis.units[unit]), low, high, color=colour, alpha=0.15, linewidth=0)
    if bound:
        _mark_targets(axes, bound)
    axes.set(ylabel="test accuracy", ylim=(0, 1))
    axes.yaxis.set_major_formatter(mpl.ticker.PercentFormatter(1.0))
    if sum(bool(label) for _, label, *_ in drawn) > FEW:  # above the curves, which would be under it
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False, fontsize=9)
    elif drawn:
        axes.legend(loc="best", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return save(figure, path)


def _drawn_together(series: Series) -> Sequence[Sequence[Run]]:
    """Seeds as one curve; each as its own where they end at different rounds, as a mean of some would not be theirs."""
    alike = len({run.rounds for run in series.runs}) == 1
    return [series.runs] if alike else [[run] for run in series.runs]


def _label(series: Series, runs: Sequence[Run]) -> str:
    """Runs on several data sets are told apart by these too."""
    dataset, several = series.config.dataset, len({run.config.dataset for run in runs}) > 1
    return f"{series.label}, {dataset}" if several and dataset not in series.label else series.label


def _mark_targets(axes: Axes, bound: Bound) -> None:
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
    check_picture(path)
    for text in figure.findobj(Text):
        text.set_parse_math(False)  # a class or a folder may be called $10
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix[1:], dpi=150)
    plt.close(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, drawn.getvalue())  # not through a link that a folder from elsewhere may hold
    return path
