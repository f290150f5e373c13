"""Pictures of superclients and of what pre-training tells about clients."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from fedseq.report.figures import COLOURS, look, save

MANY_CLASSES = 20


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
