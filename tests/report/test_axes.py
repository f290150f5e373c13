"""Accuracy over what it costs: rounds flatter chains, so figures are drawn over updates, bytes and time too."""

import pytest

from fedseq.cli import main
from fedseq.report import figures
from fedseq.report.costs import AXES, Spent, mean_spent
from fedseq.runs.reading import read
from fedseq.simulation.clock import WhatIf

from .builders import make_run

CLIENTS = {"client_speed": 1.0, "bandwidth": 200.0}  # a hop of one step and 200 bytes takes two seconds


def test_there_is_an_axis_for_all_that_is_spent():
    assert set(AXES) == {"round", *Spent._fields}


def test_rounds_lie_where_the_seeds_are_in_the_mean(tmp_path):
    # A round of two chains of one client: 2 updates, 400 bytes, 2 s. With chains of three and one: 4, 800, 6 s.
    short = read(make_run(tmp_path / "short", [0.1, 0.2], seed=0, **CLIENTS))
    long = read(make_run(tmp_path / "long", [0.1, 0.2], seed=1, chains=[[0, 1, 2], [4]], **CLIENTS))
    assert mean_spent([short, long], [1, 2], "round") == [1, 2]
    assert mean_spent([short, long], [1, 2], "updates") == [3, 6]
    assert mean_spent([short, long], [2], "bytes") == [1200]
    assert mean_spent([short, long], [1, 2], "seconds") == [4, 8]
    twice_as_fast = WhatIf(client_speed=2.0)  # a step takes half a second
    assert mean_spent([short, long], [1], "seconds", twice_as_fast) == [3]


@pytest.mark.parametrize(
    ("axis", "longest", "unit"),
    [("seconds", 1, "s"), ("seconds", 119, "s"), ("seconds", 120, "min"), ("seconds", 7200, "h"),
     ("seconds", 1e6, "days"), ("bytes", 1999, "B"), ("bytes", 3e9, "GB"), ("updates", 1e9, "")],
)  # fmt: skip
def test_the_unit_is_the_largest_of_which_there_are_two(axis, longest, unit):
    assert AXES[axis].unit(longest) == unit


def test_curves_are_drawn_over_each_of_them(tmp_path, capsys):
    # FedAvg: 3 rounds of 2 s. FedSeq: its superclients of four take 8 s a round.
    avg = make_run(tmp_path / "avg", [0.1, 0.2, 0.3], **CLIENTS)
    seq = make_run(tmp_path / "seq", [0.1, 0.4], algorithm="fedseq", **CLIENTS)
    titles = {
        "updates": "client updates",
        "bytes": "bytes moved (kB)",
        "seconds": "simulated time (s)",
        "round": "round",
    }
    for over, title in titles.items():
        assert (
            main(["compare", str(avg), str(seq), "--figure", str(tmp_path / "c.svg"), "--over", over, "--force"]) == 0
        )
        drawn = (tmp_path / "c.svg").read_text()
        assert f"<!-- {title} -->" in drawn
        assert "<!-- fedavg -->" in drawn
        assert "<!-- fedseq -->" in drawn
    (avg / "clients.json").unlink()
    capsys.readouterr()
    assert main(["compare", str(avg), "--figure", str(tmp_path / "d.svg"), "--over", "seconds"]) == 2
    assert "none of these runs tells how long these clients would take" in capsys.readouterr().err
    assert not (tmp_path / "d.svg").exists()


@pytest.mark.parametrize(("rounds", "scale"), [(20, "linear"), (21, "log")])
def test_an_axis_is_logarithmic_where_short_curves_would_not_be_seen(tmp_path, monkeypatch, rounds, scale):
    """By hand: one run ends after 2 rounds of 2 updates, the other after ten times as many, or more."""
    drawn = []
    monkeypatch.setattr(figures, "save", lambda figure, path: drawn.append(figure.axes[0]))
    runs = [read(make_run(tmp_path / str(n), [0.1] * n, lr=n / 100)) for n in (2, rounds)]
    for over in ("updates", "round"):
        figures.curves(runs, tmp_path / "c.png", over=over)
    assert [axes.get_xscale() for axes in drawn] == [scale, "linear"]
    assert [max(line.get_xdata()) for line in drawn[0].lines] == [4, 2 * rounds]
