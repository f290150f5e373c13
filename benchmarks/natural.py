"""Clients that exist: FedAvg and FedSeq tuned alike on smartwatch and vowels, run, published and told in docs.

python benchmarks/natural.py run smartwatch --work DIR   # tunes, runs and publishes; stopped, it goes on in DIR
python benchmarks/natural.py run vowels --work DIR
python benchmarks/natural.py                             # the page's tables and figure, of what is published
"""

import json
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import PercentFormatter

from fedseq.report.costs import human_seconds, run_costs
from fedseq.report.figures import COLOURS, plt, save
from fedseq.report.formats import TextTable, to_markdown
from fedseq.report.run_tables import FAIRNESS
from fedseq.report.series import stat
from fedseq.runs.reading import Run, read_all, readable
from natural_tuning import CENTRAL, RATES, STUDIES, Found, Study, best_rate, best_setting, last_round, run, shown
from pages import DOCS, IMAGES, ROOT, fill

PAGES = (DOCS / "examples/smartwatch.md", DOCS / "examples/smartwatch-tuning.md")
BUDGETS = {"rounds": "at equal rounds", "seconds": "at equal simulated time"}


def runs_of(study: Study, name: str, rate: str) -> list[Run]:
    """Published ones, by seed."""
    files = (study.results / f"{name}-lr{rate}").glob("*/config.yaml")
    return sorted(readable(read_all(file.parent for file in files)), key=lambda run: run.config.seed)


def budget_table(study: Study, found: Found, budget: str) -> str:
    """Differences are between runs of the same seed, which hold out the same people."""
    base = best_setting(study, found, "fedavg", budget)
    lines = {name: ends(study, runs_of(study, name, rate), budget) for name, rate in shown(study, found, budget)}
    rows = []
    for name, rate in shown(study, found, budget):
        own = lines[name]
        ahead = [line["accuracy"] - other["accuracy"] for line, other in zip(own, lines[base], strict=True)]
        spent = [line["seconds"] if budget == "rounds" else line["round"] for line in own]
        rows.append([
            name, rate, str(len(own)), text([line["accuracy"] for line in own], "{:.1%}".format),
            text([line[FAIRNESS] for line in own], "{:.1%}".format),
            "" if name in (base, CENTRAL) else text(ahead, lambda value: f"{100 * value:+.1f}"),
            "" if name == CENTRAL else text(spent, human_seconds if budget == "rounds" else "{:.0f}".format),
        ])  # fmt: skip
    limit = f"at round {study.rounds}" if budget == "rounds" else f"after {study.seconds:.0f} s"
    columns = ["algorithm", "rate", "seeds", f"accuracy {limit}", "worst decile", f"points above {base}"]
    return to_markdown(TextTable([*columns, "simulated time" if budget == "rounds" else "rounds by then"], rows))


def ends(study: Study, runs: Sequence[Run], budget: str) -> list[dict[str, Any]]:
    """The last evaluation of each within the budget, and the clock by then."""
    lasts = [
        [line for line in run.metrics if line["round"] <= last_round(study, run, budget) and "accuracy" in line][-1]
        for run in runs
    ]
    clocks = [run_costs(run).until(line["round"]).seconds for run, line in zip(runs, lasts, strict=True)]
    return [{**line, "seconds": clock} for line, clock in zip(lasts, clocks, strict=True)]


def text(values: Sequence[float], show: Callable[[float], str]) -> str:
    """Mean and standard deviation, the latter without a sign."""
    found = stat(values)
    assert found is not None
    return found.text(show).replace("± +", "± ")


def tuning_table(study: Study, found: Found) -> str:
    rows = []
    for name, by_budget in found.items():
        for budget, by_rate in by_budget.items():
            if name == CENTRAL and budget != "rounds":
                continue  # it knows no budget
            top = best_rate(by_rate)
            cells = (f"{accuracy:.1%}" + (", chosen" if rate == top else "") for rate, accuracy in by_rate.items())
            rows.append([name, "" if name == CENTRAL else BUDGETS[budget], *cells])
    return to_markdown(TextTable(["algorithm", "best", *(f"rate {rate:g}" for rate in RATES)], rows, left=2))


def tables() -> dict[str, str]:
    found = {}
    for study in (study for study in STUDIES.values() if study.tuning.exists()):
        tuned = json.loads(study.tuning.read_text())
        for budget in BUDGETS:
            found[f"{study.dataset} {BUDGETS[budget]}"] = budget_table(study, tuned, budget)
        found[f"{study.dataset} tuning"] = tuning_table(study, tuned)
    return found


def draw(folder: Path) -> Iterator[Path]:
    """Accuracy over rounds and over simulated time, each with the rates that were chosen for it."""
    study = STUDIES["smartwatch"]
    found = json.loads(study.tuning.read_text())
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained", sharey=True)
    colours = {name: COLOURS[place] for place, first in enumerate(("fedavg", "fedseq")) for name in study.family(first)}
    for axes, budget in zip(panels, BUDGETS, strict=True):
        for name, rate in shown(study, found, budget):
            runs = runs_of(study, name, rate)
            if name == CENTRAL:
                bound = np.mean([line["accuracy"] for line in ends(study, runs, budget)])
                axes.axhline(bound, color="#888888", linestyle=":", linewidth=1, label="all data in one place")
                continue
            at, curves = steps(study, runs, budget)
            means, spread = curves.mean(0), curves.std(0, ddof=1) if len(curves) > 1 else 0.0
            style = "-" if "+" in name else "--"
            axes.plot(at, means, style, color=colours[name], label=name, linewidth=1.8)
            axes.fill_between(at, means - spread, means + spread, color=colours[name], alpha=0.12, linewidth=0)
        axes.set(xlabel="round" if budget == "rounds" else "simulated seconds", ylim=(0, 1), title=BUDGETS[budget])
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.legend(loc="upper left", frameon=False, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set(ylabel="accuracy on people never seen")
    yield save(figure, folder / "smartwatch.png")


def steps(study: Study, runs: Sequence[Run], budget: str) -> tuple[np.ndarray, np.ndarray]:
    """Where to draw, and each run's last accuracy by then, from where all have one."""
    axis = "round" if budget == "rounds" else "simulated_seconds"
    limit = study.rounds if budget == "rounds" else study.seconds
    first = max(run.metrics[0][axis] for run in runs)
    evaluated = [line[axis] for line in runs[0].metrics if line[axis] <= limit]
    at = np.array(evaluated) if budget == "rounds" else np.linspace(first, limit, 100)
    curves = [[[line["accuracy"] for line in run.metrics if line[axis] <= point][-1] for point in at] for run in runs]
    return at, np.array(curves)


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", nargs="?", choices=["run"])
    parser.add_argument("dataset", nargs="?", choices=STUDIES)
    parser.add_argument("--work", type=Path, default=Path("runs/natural"), help="folder for runs and tuning")
    given = parser.parse_args()
    if given.what:
        if given.dataset is None:
            parser.error("say which: smartwatch or vowels")
        run(STUDIES[given.dataset], given.work / given.dataset)
        return  # the page needs both
    fill(PAGES, tables())
    for path in (*PAGES, *draw(IMAGES)):
        print(path.relative_to(ROOT))  # noqa: T201


if __name__ == "__main__":
    main()
