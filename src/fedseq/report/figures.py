"""Pictures of runs, sweeps and superclients, drawn by matplotlib without a display."""

import io
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from fedseq.report.run_tables import Point, value_text
from fedseq.report.series import Series, make_series, mean_curve
from fedseq.runs.reading import Run
from fedseq.simulation.clock import WhatIf

MANY_CLASSES = 20  # more than violins can show
FEW = 4  # curves that leave room for a legend among them
FAR_APART = 10  # times: of curves that end so far apart, the short ones are seen on a logarithmic axis only
# Okabe and Ito's palette: distinguishable with any kind of colour vision. Yellow is hard to see on white: the last one.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
LINES = ("solid", "dashed", "dotted")


Look = tuple[str, str]  # colour and line


def look(number: int) -> Look:
    """Colour and line of the curve with this number: where all colours are used, they come again with another line."""
    return COLOURS[number % len(COLOURS)], LINES[number // len(COLOURS) % len(LINES)]


def curves(
    runs: Sequence[Run],
    path: Path,
    bound: Bound | None = None,
    over: str = ROUND,
    what_if: WhatIf = AS_RECORDED,
    shown: Callable[[Series], tuple[str, Look]] | None = None,
) -> Path:
    """Accuracy over rounds or what they cost, the mean of a series with its standard deviation, and dotted targets.

    `shown` gives the name and the look of each series in place of the usual ones.
    """
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    axis, drawn, untold = AXES[over], [], []
    for number, series in enumerate(one for one in make_series(runs) if not one.central):
        label, own = shown(series) if shown else (_label(series, runs), look(number))
        # Seeds that end at different rounds are a curve each: a mean of some would not be theirs.
        alike = len({run.rounds for run in series.runs}) == 1
        for together in [series.runs] if alike else [[run] for run in series.runs]:
            rounds, means, spread = mean_curve(together)
            at = mean_spent(together, rounds, over, what_if)
            if at:
                drawn.append((own, label, at, means, spread))
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


def heat_map(points: Sequence[Point], varied: Sequence[str], path: Path) -> Path:
    """Final accuracy over two options: a column for each value of the first, a row for each of the second."""
    columns, rows = (  # numbers by size, names by the alphabet, what is absent first
        sorted({point.values[axis] for point in points}, key=lambda value: (value is not None, value or 0))
        for axis in (0, 1)
    )
    cells = np.full((len(rows), len(columns)), np.nan)
    for point in points:
        if point.final:
            cells[rows.index(point.values[1]), columns.index(point.values[0])] = 100 * point.final.mean
    room = max(0.9, 0.09 * max(len(value_text(value)) for value in columns) + 0.2)  # for the names below the columns
    figure, axes = plt.subplots(figsize=(2.4 + room * len(columns), 1.6 + 0.5 * len(rows)), layout="constrained")
    image = axes.imshow(cells, cmap="cividis", aspect="auto")
    middle = (np.nanmin(cells) + np.nanmax(cells)) / 2
    for (row, column), value in np.ndenumerate(cells):
        text = "-" if np.isnan(value) else f"{value:.1f}"
        axes.text(column, row, text, ha="center", va="center", color="white" if value < middle else "black")
    axes.set_xticks(range(len(columns)), [value_text(value) for value in columns])
    axes.set_yticks(range(len(rows)), [value_text(value) for value in rows])
    axes.set(xlabel=varied[0].replace("_", " "), ylabel=varied[1].replace("_", " "))
    figure.colorbar(image, label="final accuracy (%)")
    return save(figure, path)


def violins(counts: np.ndarray, groups: Mapping[str, Sequence[Sequence[int]]], path: Path) -> Path:
    """For each criterion: how a class's share of a superclient spreads over the superclients. Flat and thin is good."""
    columns = min(3, len(groups))
    rows = -(-len(groups) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(4.2 * columns, 2.4 * rows + 0.5), sharex=True, sharey=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for place, (name, members) in zip(axes.flat, groups.items(), strict=False):
        draw_shares(place, counts, members)
        place.set_title(name, fontsize=9)
        place.spines[["top", "right"]].set_visible(False)
    for place in list(axes.flat)[len(groups) :]:
        place.set_visible(False)
    figure.supxlabel("class", fontsize=10)
    figure.supylabel("share of a superclient", fontsize=10)
    return save(figure, path)


def draw_shares(place: Axes, counts: np.ndarray, groups: Iterable[Sequence[int] | np.ndarray]) -> None:
    """How each class's share of a superclient spreads; the dotted line is where all classes are equally frequent."""
    totals = np.array([counts[list(group)].sum(0) for group in groups], dtype=float)
    shares = totals / np.maximum(totals.sum(1, keepdims=True), 1)
    classes = np.arange(shares.shape[1])
    place.axhline(1 / len(classes), color="#555555", linestyle=":", linewidth=1)
    if len(classes) > MANY_CLASSES:  # a violin each would be hairs: the middle and the spread instead
        low, middle, high = np.quantile(shares, (0.05, 0.5, 0.95), axis=0)
        place.fill_between(classes, low, high, color=COLOURS[0], alpha=0.3)
        place.plot(classes, middle, color=COLOURS[0])
        return
    parts = place.violinplot([shares[:, c] for c in classes], positions=list(classes), widths=0.9, showextrema=False)
    for body in list(parts["bodies"]):  # type: ignore[call-overload]
        body.set_facecolor(COLOURS[0])
        body.set_alpha(0.6)
    place.plot(classes, np.median(shares, axis=0), ".", color="#000000", markersize=3)


def similarity_maps(matrices: Mapping[int, np.ndarray], path: Path) -> Path:
    """Cosine between the parameters of pre-trained clients, one map for each number of epochs."""
    figure, axes = plt.subplots(
        1, len(matrices), figsize=(3.4 * len(matrices) + 0.8, 3.7), squeeze=False, layout="constrained"
    )
    low = min(float(np.nanmin(matrix)) for matrix in matrices.values())
    for place, (epochs, matrix) in zip(axes[0], matrices.items(), strict=True):
        image = place.imshow(matrix, vmin=low, vmax=1.0, cmap="viridis", interpolation="nearest")
        place.set_title(f"e = {epochs}", fontsize=10)
        place.set_xlabel("client")
    axes[0][0].set_ylabel("client")
    figure.colorbar(image, ax=list(axes[0]), label="cosine", shrink=0.85)
    return save(figure, path)


def similarity_norms(matrices: Mapping[int, np.ndarray], path: Path) -> Path:
    """The norm of the similarity matrix over the epochs of pre-training: it falls from 1 as clients grow apart."""
    figure, axes = plt.subplots(figsize=(5, 3.4), layout="constrained")
    axes.plot(list(matrices), [similarity_norm(matrix) for matrix in matrices.values()], "o-", color=COLOURS[0])
    axes.set(xlabel="epochs of pre-training e", ylabel="norm of the similarity matrix, ||D|| / K")
    axes.spines[["top", "right"]].set_visible(False)
    return save(figure, path)


def similarity_norm(matrix: np.ndarray) -> float:
    """Frobenius norm over the number of clients: 1 where all are alike. A client whose norm is 0 has no cosine."""
    return float(np.sqrt(np.nansum(matrix**2)) / len(matrix))


def components_kept(shares: Mapping[str, Mapping[int, float]], path: Path) -> Path:
    """Share of the possible components (clients - 1) that hold 90 % of the variance of the classifiers' weights."""
    figure, axes = plt.subplots(figsize=(5, 3.4), layout="constrained")
    for number, (name, by_epochs) in enumerate(shares.items()):
        colour, line = look(number)
        axes.plot(list(by_epochs), list(by_epochs.values()), marker="o", color=colour, linestyle=line, label=name)
    axes.set(xlabel="epochs of pre-training e", ylabel="components kept", ylim=(0, 1))
    axes.yaxis.set_major_formatter(mpl.ticker.PercentFormatter(1.0))
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return save(figure, path)
