"""The paper's figures, from run folders and studies. What was not run is a panel that says so."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")

from matplotlib import pyplot as plt

from fedseq.paper.cells import heading, ran, study_groups
from fedseq.paper.plan import TITLES, PaperPlan
from fedseq.report.figures import COLOURS, draw_shares, similarity_norm
from fedseq.report.series import mean_curve
from fedseq.runs.reading import Run
from fedseq.sweep.assignments import Assignment

Axes = Any
STYLES: Any = ("solid", (0, (4, 2)))  # by turns: a curve that lies on another leaves it visible
STYLE: Any = {"axes.spines.top": False, "axes.spines.right": False, "font.size": 9, "legend.frameon": False}


def draw(plan: PaperPlan, stem: Path) -> list[Path]:
    """NAME.png and NAME.pdf."""
    with mpl.rc_context(STYLE):
        figure = FIGURES[plan.experiment.kind](plan)
        title = f"{plan.experiment.title} (scale {plan.scale.name})"
        figure.suptitle(textwrap.fill(title, int(12 * figure.get_figwidth())), fontsize=10)
        paths = [stem.with_suffix(suffix) for suffix in (".png", ".pdf")]
        for path in paths:
            figure.savefig(path, dpi=150)
        plt.close(figure)
    return paths


def _panels(shown: Sequence[bool], columns: int, **options: Any) -> tuple[Any, np.ndarray]:
    """A row of panels each; low ones where nothing was run."""
    heights = [1.0 if one else 0.25 for one in shown]
    return plt.subplots(
        len(shown), columns, figsize=(3.6 * columns, 2.7 * sum(heights) + 0.6), squeeze=False, layout="constrained",
        height_ratios=heights, **options,
    )  # fmt: skip


def _rows(plan: PaperPlan) -> list[bool]:
    return [plan.ours(dataset) is not None for dataset in plan.experiment.datasets]


def _say(axes: Axes, text: str) -> None:
    axes.set_axis_off()
    axes.text(0.5, 0.5, text.replace(" (", "\n("), ha="center", va="center", transform=axes.transAxes, color="#666666")


def _why(plan: PaperPlan, dataset: str) -> str:
    return "not run" if plan.ours(dataset) else f"not run ({plan.why_not(dataset)})"


def _curves(plan: PaperPlan) -> Any:
    """Accuracy over rounds; with several passes over a superclient, over rounds times passes."""
    experiment = plan.experiment
    figure, axes = _panels(_rows(plan), len(experiment.alphas), sharey="row")
    for line, dataset in zip(axes, experiment.datasets, strict=True):
        for panel, alpha in zip(line, experiment.alphas, strict=True):
            drawn = [
                _curve(
                    panel, name, options, COLOURS[number], STYLES[number % 2], ran(plan.runs(dataset, alpha, options))
                )
                for number, (name, options) in enumerate(experiment.rows.items())
            ]
            if not any(drawn):
                _say(panel, _why(plan, dataset))
            panel.set_title(f"{heading(plan, dataset)}, alpha = {alpha:g}", fontsize=8)
            panel.set_xlabel("round x E_S" if experiment.kind == "passes" else "round")
            panel.xaxis.set_major_locator(mpl.ticker.MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
        line[0].set_ylabel("test accuracy (%)")
    for panel in axes.flat:
        if panel.lines:
            panel.legend(fontsize=7, loc="lower right")
            break
    return figure


def _curve(panel: Axes, name: str, options: Mapping[str, Any], colour: str, style: Any, runs: Sequence[Run]) -> bool:
    rounds, means, spread = (np.array(values) for values in mean_curve(runs))
    means, spread = 100 * means, 100 * spread
    work = rounds * options.get("superclient_epochs", 1)
    if len(rounds):
        panel.plot(work, means, label=name, color=colour, linewidth=1.6, linestyle=style)
        panel.fill_between(work, means - spread, means + spread, color=colour, alpha=0.15, linewidth=0)
    return bool(len(rounds))


def _done(assignments: Sequence[Assignment]) -> list[Assignment]:
    return [assignment for assignment in assignments if assignment.studied]


def _similarity(plan: PaperPlan) -> Any:
    """Heat maps of D^e, and its norm over e: the further from 1 (all alike), the more pre-training tells of clients."""
    epochs = plan.experiment.epochs
    figure, axes = _panels(_rows(plan), 4)
    shown = (epochs[0], 10, epochs[-1])
    for line, dataset in zip(axes, plan.experiment.datasets, strict=True):
        assignments = plan.studies(dataset, plan.experiment.alphas[0])
        if not _done(assignments):
            for panel in line:
                _say(panel, _why(plan, dataset))
            line[0].set_title(heading(plan, dataset), fontsize=8)
            continue
        with np.load(assignments[0].study) as arrays:
            matrices = {e: arrays[f"similarity {e}"] for e in assignments[0].epochs}
        least = min(float(matrix.min()) for matrix in matrices.values())
        for panel, e in zip(line, shown, strict=False):
            if e in matrices:
                image = panel.imshow(matrices[e], vmin=least, vmax=1.0, cmap="cividis", interpolation="nearest")
                panel.set_title(f"{TITLES[plan.ours(dataset) or dataset]}, e = {e}", fontsize=8)
                panel.set_xlabel("client")
            else:
                _say(panel, f"not run (e = {e} is beyond scale {plan.scale.name})")
        figure.colorbar(image, ax=line[2], label="cosine")
        line[3].plot(
            list(matrices), [similarity_norm(matrix) for matrix in matrices.values()], marker="o", color=COLOURS[0]
        )
        line[3].set(xlabel="epochs e", ylabel="||D|| / K")
    return figure


def _components(plan: PaperPlan) -> Any:
    figure, axes = _panels([True], len(plan.experiment.datasets), sharey=True)
    for panel, dataset in zip(axes.flat, plan.experiment.datasets, strict=True):
        panel.set_title(heading(plan, dataset), fontsize=8)
        for number, alpha in enumerate(plan.experiment.alphas):
            for assignment in _done(plan.studies(dataset, alpha))[:1]:
                with np.load(assignment.study) as arrays:
                    kept = [arrays[f"components classifier-all {e}"] for e in assignment.epochs]
                shares = [one[0] / one[1] for one in kept]
                panel.plot(assignment.epochs, shares, marker="o", color=COLOURS[number], label=f"alpha = {alpha:g}")
        if panel.lines:
            panel.set(xlabel="epochs e", ylabel="components kept / possible", ylim=(0, 1))
            panel.legend()
        else:
            _say(panel, _why(plan, dataset))
    return figure


def _violins(plan: PaperPlan) -> Any:
    """How each class's share of a superclient spreads over the superclients: flat and thin is good."""
    methods, alphas = plan.experiment.rows, plan.experiment.alphas
    figure, axes = _panels([*_rows(plan), _rows(plan)[0]], max(len(methods), len(alphas)), sharey="row")
    for line, dataset in zip(axes, plan.experiment.datasets, strict=False):
        for panel, (name, criterion) in zip(line, methods.items(), strict=False):
            _violin(panel, plan, dataset, alphas[0], criterion)
            panel.set_title(f"{heading(plan, dataset)}\n{name}, alpha = {alphas[0]:g}", fontsize=8)
    for panel, alpha in zip(axes[-1], alphas, strict=False):
        dataset = plan.experiment.datasets[0]
        _violin(panel, plan, dataset, alpha, methods["random"])
        panel.set_title(f"{heading(plan, dataset)}\nrandom, alpha = {alpha:g}", fontsize=8)
    for line in axes:
        line[0].set_ylabel("share of a superclient")
    return figure


def _violin(panel: Axes, plan: PaperPlan, dataset: str, alpha: float, criterion: Mapping[str, str | None]) -> None:
    assignments = plan.studies(dataset, alpha)
    if not _done(assignments):
        _say(panel, _why(plan, dataset))
        return
    counts, groups = study_groups(_done(assignments)[0], criterion)
    draw_shares(panel, counts, groups)
    panel.set_xlabel("class")


FIGURES: dict[str, Callable[[PaperPlan], Any]] = {
    "curves": _curves, "passes": _curves, "similarity": _similarity, "components": _components, "violins": _violins,
}  # fmt: skip
