"""Accuracy over epsilon beside accuracy over rounds: in the tables, in the figure and on the page."""

import csv
import io
import json

import pytest

from fedseq.basics.errors import FedSeqError
from fedseq.cli import main
from fedseq.report import figures
from fedseq.report.convergence import Bound, compare
from fedseq.report.costs import mean_spent, run_costs
from fedseq.report.page import make_curve, summarise
from fedseq.report.run_tables import comparison_csv, comparison_table, cost_table
from fedseq.report.series import make_series
from fedseq.runs.reading import read, read_all

from .builders import make_run

ALL = Bound(1.0, "as given")  # targets .7, .8, .9
PRIVATE = {"dp_clip_norm": 1.0, "dp_noise_multiplier": 2.0}


def make_private(folder, accuracies, spent, **options):
    """As `make_run`, with what had been spent after each round."""
    make_run(folder, accuracies, **PRIVATE, **options)
    file = folder / "metrics.jsonl"
    lines = [
        {**json.loads(line), "epsilon": epsilon}
        for line, epsilon in zip(file.read_text().splitlines(), spent, strict=True)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture
def runs(tmp_path):
    """Two seeds of a private FedAvg, whose clients were not drawn equally often, and FedSeq without privacy."""
    make_private(tmp_path / "a", [0.2, 0.7, 0.85, 0.85], [1.0, 2.0, 2.0, 3.0], seed=0)
    make_private(tmp_path / "b", [0.4, 0.7, 0.75, 0.95], [1.0, 1.0, 3.0, 4.0], seed=1)
    make_run(tmp_path / "c", [0.5, 0.9], algorithm="fedseq")
    return [read(tmp_path / name) for name in "abc"]


def column(table, name):
    return [row[list(table.columns).index(name)] for row in table.rows]


def test_the_tables_tell_what_was_spent_by_the_end_and_by_the_target(runs):
    """At the end 3 and 4: mean 3.5, sample deviation 0.71. 80 % is reached at round 3 with 2, at round 4 with 4."""
    rows = compare(runs, ALL)
    assert column(comparison_table(rows, ALL), "epsilon") == ["3.50 ± 0.71", "-"]
    assert column(cost_table(rows, "clients"), "epsilon") == ["3.00 ± 1.41", "-"]
    lines = list(csv.DictReader(io.StringIO(comparison_csv(rows))))
    assert [line["target_epsilon"] for line in lines] == ["1.5", "3.0", "4.0", "", "", ""]
    assert {line["epsilon"] for line in lines if line["algorithm"] == "fedavg"} == {"3.5"}


def test_runs_without_privacy_have_no_such_column(runs):
    rows = compare(runs[2:], ALL)
    assert "epsilon" not in comparison_table(rows, ALL).columns
    assert "epsilon" not in cost_table(rows, "clients").columns
    assert "epsilon" not in comparison_csv(rows)


def test_a_series_in_which_one_run_promises_nothing_promises_nothing(tmp_path):
    make_private(tmp_path / "a", [0.5], [1.0], seed=0)
    make_private(tmp_path / "b", [0.5], [None], seed=1)
    (series,) = make_series([read(tmp_path / name) for name in "ab"])
    assert len(series.runs) == 2
    assert series.epsilon() is None


def test_the_curve_over_epsilon_is_the_mean_over_seeds(runs, tmp_path):
    private, plain = make_series(runs)
    assert mean_spent(private.runs, [1, 2, 4], "epsilon") == [1.0, 1.5, 3.5]
    assert mean_spent(plain.runs, [1, 2], "epsilon") == []
    curve = make_curve(private, [run_costs(run) for run in private.runs])
    assert curve["epsilon"] == [1.0, 1.5, 2.5, 3.5]
    assert make_curve(plain, [run_costs(run) for run in plain.runs])["epsilon"] == [None, None]
    over_rounds = figures.curves(runs, tmp_path / "rounds.svg").read_text()
    over_epsilon = figures.curves(runs, tmp_path / "epsilon.svg", over="epsilon").read_text()
    assert "<!-- fedseq -->" in over_rounds  # matplotlib writes its texts beside their shapes
    assert "<!-- epsilon -->" in over_epsilon
    assert "<!-- fedseq -->" not in over_epsilon
    with pytest.raises(FedSeqError, match="none of these runs promises an epsilon"):
        figures.curves(runs[2:], tmp_path / "none.svg", over="epsilon")


def test_the_command_draws_over_epsilon_and_the_page_offers_it(runs, tmp_path, capsys):
    folders = [str(run.folder) for run in runs]
    assert main(["compare", *folders, "--markdown", "--figure", str(tmp_path / "e.png"), "--over", "epsilon"]) == 0
    assert "| epsilon |" in " ".join(capsys.readouterr().out.split())
    assert (tmp_path / "e.png").stat().st_size > 1000
    assert main(["compare", *folders, "--over", "epsilon"]) == 2
    assert "give --figure FILE too" in capsys.readouterr().err
    (shown,) = summarise(read_all([run.folder for run in runs]))["datasets"]
    assert shown["private"]
    assert shown["series"][0]["cells"][4] == {"text": "3.50 ± 0.71", "sort": 3.5}
    (plain,) = summarise(read_all([runs[2].folder]))["datasets"]
    assert not plain["private"]
