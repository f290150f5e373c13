"""Runs at equal rounds and at equal simulated time, by hand."""

from pathlib import Path

import pytest

from fedseq.cli import main
from fedseq.report.costs import Costs
from fedseq.report.run_tables import budget_table
from fedseq.runs.reading import read_run

from .builders import make_run


def _costs(rounds: int, each: float) -> Costs:
    numbers = tuple(range(1, rounds + 1))
    return Costs(numbers, numbers, numbers, tuple(each * number for number in numbers))


def test_at_round_two_and_after_the_time_that_takes_the_slowest(tmp_path: Path) -> None:
    """A round of FedAvg takes 1 s and one of FedSeq 2.5 s: two of these are five of those, with the accuracy then."""
    runs = [
        read_run(make_run(tmp_path / "avg", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])),
        read_run(make_run(tmp_path / "seq", [0.3, 0.55, 0.7], algorithm="fedseq")),
        read_run(make_run(tmp_path / "prox", [0.1, None, 0.35], algorithm="fedprox")),
    ]
    costs = {runs[0].folder: _costs(6, 1.0), runs[1].folder: _costs(3, 2.5), runs[2].folder: _costs(3, 1.0)}
    table = budget_table(runs, costs, 2)
    assert list(table.columns) == [
        "algorithm", "seeds", "accuracy at round 2", "simulated time", "accuracy after 5 s", "rounds by then",
    ]  # fmt: skip
    assert [list(row) for row in table.rows] == [
        ["fedavg", "1", "20.0%", "2 s", "50.0%", "5"],
        ["fedseq", "1", "55.0%", "5 s", "55.0%", "2"],
        ["fedprox", "1", "10.0%", "2 s", "35.0%", "3, its last"],
    ]


def test_compare_takes_a_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path / "runs" / "avg", [0.1, 0.2, 0.3])
    assert main(["compare", str(tmp_path / "runs"), "--at", "2"]) == 0
    assert "accuracy at round 2" in capsys.readouterr().out
    assert main(["compare", str(tmp_path / "runs"), "--at", "two"]) == 2
    assert "--at must be 1 or more, not two" in capsys.readouterr().err


def test_a_run_that_ended_before_the_round_has_no_accuracy_there(tmp_path: Path) -> None:
    runs = [
        read_run(make_run(tmp_path / "avg", [0.1, 0.2, 0.3])),
        read_run(make_run(tmp_path / "seq", [0.4], "fedseq")),
    ]
    costs = {runs[0].folder: _costs(3, 1.0), runs[1].folder: _costs(1, 1.0)}
    rows = {row[0]: list(row[2:4]) for row in budget_table(runs, costs, 2).rows}
    assert rows == {"fedavg": ["20.0%", "2 s"], "fedseq": ["-", "-"]}


def test_no_time_is_told_of_a_round_that_was_thinned_out(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path / "avg", [0.1, 0.2, 0.3, 0.4]))
    costs = {run.folder: Costs((2, 4), (2, 4), (2, 4), (2.0, 4.0))}
    assert [row[3] for row in budget_table([run], costs, 3).rows] == ["-"]
    assert [row[3] for row in budget_table([run], costs, 4).rows] == ["4 s"]
