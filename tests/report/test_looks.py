"""No two curves of a figure look alike, however many there are."""

from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from fedseq.report import figures
from fedseq.runs.reading import Run, read

from .builders import make_run

MANY = 20  # eight colours twice, and four more
YELLOW = "#F0E442"


def looks(lines: list[Line2D]) -> list[tuple[object, object]]:
    return [(line.get_color(), line.get_linestyle()) for line in lines]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Axes]:
    """What is drawn, looked at before it is closed."""
    found: list[Axes] = []
    monkeypatch.setattr(figures, "save", lambda figure, path: found.append(figure.axes[0]))
    return found


def assert_all_differ(axes: Axes) -> None:
    found = looks(axes.get_lines())
    assert len(set(found)) == len(found) == MANY
    assert [line for _, line in found] == ["-"] * 8 + ["--"] * 8 + [":"] * 4
    assert [colour for colour, _ in found].index(YELLOW) == 7  # hard to see on white, and so the last
    legend = axes.get_legend()
    assert legend is not None
    assert looks(legend.get_lines()) == found


def test_curves_of_many_series_differ(tmp_path: Path, drawn: list[Axes]) -> None:
    runs = [read(make_run(tmp_path / str(n), [0.1, 0.2], lr=n / 100)) for n in range(1, MANY + 1)]
    figures.curves([run for run in runs if isinstance(run, Run)], tmp_path / "c.png")
    assert_all_differ(drawn[0])


def test_no_series_of_components_is_left_out(tmp_path: Path, drawn: list[Axes]) -> None:
    figures.components_kept({f"estimate {n}": {1: 0.5, 2: 0.4} for n in range(MANY)}, tmp_path / "c.png")
    assert_all_differ(drawn[0])
