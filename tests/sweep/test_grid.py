import re
from pathlib import Path

import pytest

from fedseq.basics.errors import FedSeqError
from fedseq.cli import main
from fedseq.report.convergence import compare
from fedseq.report.figures import heat_map
from fedseq.report.run_tables import best_table, comparison_table, grid_points
from fedseq.runs.reading import read
from fedseq.sweep.assignments import plan_grid, read_values
from report.builders import make_run


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("lr", "0.1,0.03", [0.1, 0.03]),
        ("lr", "1e-3", [0.001]),  # no range: rates are no whole numbers
        ("seed", "0-4", [0, 1, 2, 3, 4]),
        ("seed", "7, 0-2,1", [7, 0, 1, 2]),  # each once
        ("grouping", "greedy,exchange", ["greedy", "exchange"]),
        ("lr", [0.1, 0.03], [0.1, 0.03]),  # of a YAML file
        ("rounds", 5, [5]),
        ("data_dir", "/data/a,b", ["/data/a,b"]),
        ("dataset", "npz:a,b.npz", ["npz:a,b.npz"]),
        ("max_grad_norm", "null,1", [None, 1.0]),
        ("window", "2-4", [2, 3, 4]),  # of a rule
        ("smoothed.keep", "0.3, 0.9,0.3", [0.3, 0.9]),  # of a rule of one's own
        ("smoothed.parts", "[1,2],[3]", [(1, 2), (3,)]),
        ("smoothed.keep", [0.3, 0.9], [0.3, 0.9]),
    ],
)
def test_values_of_an_option(name, given, expected):
    assert read_values(name, given) == expected


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("seed", "4-0", "must go up"),
        ("seed", "0-100000", "less than 1000"),
        ("lr", ",", "takes a value, or several"),
        ("smoothed.keep", "", "--rule smoothed.keep takes a value, or several"),
        ("smoothed.keep", "[1,2", "cannot be read"),
        ("lr", "0.1,fast", "--lr takes a number"),
        ("larning_rate", "1", "unknown option"),
    ],
)
def test_values_that_make_no_sense(name, given, message):
    with pytest.raises(FedSeqError, match=message):
        read_values(name, given)


def test_every_combination_is_a_run_and_names_what_is_varied():
    grid = plan_grid({"lr": "0.1,0.03", "grouping": "greedy,exchange", "seed": "0-1", "rounds": "5"}, None)
    assert grid.varied == ("lr", "grouping")
    assert len(grid.values) == 2 * 2 * 2
    names = {assignment.folder.name: values for assignment, values in grid.values.items()}
    assert names["fedseq-lr0.03-exchange-alpha0-seed1"] == (0.03, "exchange")
    assert all(str(assignment.folder.parent) == "runs/sweep-digits" for assignment in grid.values)


def test_what_an_algorithm_does_not_use_makes_no_more_runs_of_it():
    grid = plan_grid({"algorithm": "centralized,fedavg,fedseq", "grouping": "greedy,random", "alpha": "0,0.2"}, None)
    names = sorted(assignment.folder.name for assignment in grid.values)
    assert names == [
        "centralized-seed0", "fedavg-alpha0-seed0", "fedavg-alpha0.2-seed0", "fedseq-greedy-alpha0-seed0",
        "fedseq-greedy-alpha0.2-seed0", "fedseq-random-alpha0-seed0", "fedseq-random-alpha0.2-seed0",
    ]  # fmt: skip
    with pytest.raises(FedSeqError, match="none of these runs would use --mu"):
        plan_grid({"algorithm": "fedavg,fedseq", "mu": "0.1,1"}, None)


def test_hyper_parameters_of_ones_own_rule_are_varied_too():
    grid = plan_grid({"algorithm": "fedavg,fedseq+mine:smoothed", "smoothed.keep": [0.3, 0.9], "lr": "0.1,1"}, None)
    assert grid.varied == ("algorithm", "lr", "smoothed.keep")
    names = {assignment.folder.name: values for assignment, values in grid.values.items()}
    assert len(names) == 2 + 2 * 2  # fedavg has no such rule
    assert names["fedseq+mine-smoothed-lr1-smoothed.keep0.9-alpha0-seed0"] == ("fedseq+mine:smoothed", 1.0, 0.9)
    assert names["fedavg-lr1-alpha0-seed0"] == ("fedavg", 1.0, None)
    with pytest.raises(FedSeqError, match=r"none of these runs would use --rule smoothed\.keep"):
        plan_grid({"algorithm": "fedavg", "smoothed.keep": "0.3,0.9"}, None)


@pytest.mark.parametrize("name", ["workers", "ray_address"])
def test_where_one_run_is_computed_is_no_matter_of_a_sweep(name):
    with pytest.raises(FedSeqError, match="each run of a sweep has one process"):
        plan_grid({"algorithm": "fedavg", name: "2"}, None)


def test_the_best_comes_first_and_two_options_make_a_heat_map(tmp_path):
    finals = {(0.1, "greedy", 0): 0.5, (0.1, "greedy", 1): 0.7, (0.03, "greedy", 0): 0.9, (0.1, "random", 0): 0.2}
    runs = []
    for (lr, method, seed), accuracy in finals.items():
        folder = make_run(tmp_path / f"{lr}-{method}-{seed}", [accuracy], algorithm="fedseq", lr=lr, seed=seed)
        runs.append(((lr, method), read(folder)))
    points = grid_points(runs)
    assert [point.values for point in points] == [(0.03, "greedy"), (0.1, "greedy"), (0.1, "random")]
    assert points[1].final.mean == pytest.approx(0.6)  # of 0.5 and 0.7
    table = best_table(points, ("lr", "grouping"))
    assert [row[0] for row in table.rows] == ["0.03", "0.1", "0.1"]
    assert table.rows[0] == ["0.03", "greedy", "90.00%", "1"]
    assert heat_map(points, ("lr", "grouping"), tmp_path / "heat.png").stat().st_size > 5000


def test_values_that_diverged_have_no_accuracy_and_come_last(tmp_path):
    """However good they were before: 0.9 of a rate that diverged in one of two seeds, or in both."""
    runs = {}
    for lr, accuracies in {0.1: (0.5, 0.7), 1.0: (0.8, 0.9), 9.0: (0.9, 0.9)}.items():
        for seed, accuracy in enumerate(accuracies):
            bad = (lr, seed) in {(1.0, 1), (9.0, 0), (9.0, 1)}
            options = {"lr": lr, "seed": seed, "rounds": 2 if bad else 1, "finished": not bad}
            runs[lr, seed] = read(make_run(tmp_path / f"{lr}-{seed}", [accuracy], **options))
    gone = {tmp_path / "1.0-1", tmp_path / "9.0-0", tmp_path / "9.0-1"}
    points = grid_points((((lr,), run) for (lr, _), run in runs.items()), gone)
    cells = {row[0]: row[1:] for row in best_table(points, ("lr",)).rows}
    assert list(cells) == ["0.1", "1", "9"]
    assert cells["0.1"][0].startswith("60.00%")
    assert (cells["1"], cells["9"]) == (["1 of 2 diverged", "0"], ["diverged", "0"])
    table = comparison_table(compare([runs[0.1, 0], runs[9.0, 0], runs[9.0, 1]], None), None, diverged=gone)
    assert [row[0] for row in table.rows] == ["fedavg (lr 0.1)", "fedavg (lr 9)"]  # and not "(unfinished)"
    assert [row[table.columns.index("final accuracy")] for row in table.rows] == ["50.00%", "diverged"]


@pytest.mark.slow
def test_a_sweep_that_diverged_says_so_each_time(capsys):
    words = ["--algorithm", "fedavg", "--lr", "0.1,1e30", "--rounds", "1", "--num-clients", "20", "--jobs", "1"]
    tables = []
    for told in ("0 of 2 finished, 2 to do", "1 of 2 finished, 1 diverged before, 0 to do"):
        assert main(["sweep", *words, "--out", "swept"]) == 2
        out = capsys.readouterr().out
        assert told in out
        assert "not finished: digits fedavg-lr1e+30-alpha0-seed0: training diverged in round 1" in out
        tables.append(out[out.index("| algorithm") :])
    assert tables[0] == tables[1]
    assert re.search(r"\| 1e\+30 +\| +diverged \| +0 \|", tables[0])
    assert "unfinished" not in tables[0]


def test_two_runs_never_share_a_folder():
    with pytest.raises(FedSeqError, match="would both be called"):
        plan_grid({"dataset": ["npz:a/x.npz", "npz:a-x.npz"], "rounds": 1}, Path("out"))
