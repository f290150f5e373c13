"""Cells and formats, from run folders written by hand."""

import csv
import io
import re
from dataclasses import replace

import pytest

from fedseq.paper import cells
from fedseq.paper.plan import SCALES, PaperPlan, load_experiment
from fedseq.report.series import Stat
from report.builders import make_run

SCALE = replace(SCALES["tiny"], options={}, seeds=(0, 1), rounds={"digits": 4})
COURSES = {"fedavg": [0.1, 0.3, 0.5, 0.72], "fedseq": [0.5, 0.85, 0.9, 0.9]}


@pytest.fixture
def plan(tmp_path):
    made = PaperPlan(load_experiment("table2"), SCALE, tmp_path)
    for assignment in made.assignments():
        config = assignment.config
        if config.algorithm == "centralized":
            make_run(assignment.folder, [1.0], algorithm="centralized")
        elif config.algorithm in COURSES and config.alpha == 0 and config.approximator == "confidence":
            make_run(assignment.folder, COURSES[config.algorithm], config.algorithm, seed=config.seed)
    return made


def test_convergence_shows_ours_beside_the_papers(plan):
    block = cells.convergence_blocks(plan, "measured")[0]
    assert block.heading == "CIFAR-10 in the paper, digits here, alpha = 0"
    assert cells.cell_text(block.rows["FedSeq"][1]) == "2 ± 0, > 2.0x (991, 7.72x, -989)"
    assert cells.cell_text(block.rows["FedAvg"][0]) == "4 ± 0, 1.0x (4036, 1x, -4032)"
    assert cells.cell_text(block.rows["FedAvg"][1]) == "> 4 (7649, 1x)"
    assert cells.cell_text(block.rows["FedDyn"][0]) == "not run (563, 7.17x)"
    assert block.rows["FedSeq"][-1] == "4 x 2 seeds"
    assert block.rows["FedDyn"][-1] == "-"
    assert "centralized, measured" in block.notes[0]


def test_targets_may_be_the_papers(plan):
    block = cells.convergence_blocks(plan, "paper")[0]
    assert block.columns[1] == "80% = 68.6%"


def test_what_was_not_run_is_never_a_number(plan):
    hundred = cells.convergence_blocks(plan, "measured")[3]
    assert all(cell.ours is None for row in hundred.rows.values() for cell in row if isinstance(cell, cells.Cell))
    assert hundred.notes == ["CIFAR-100 was not run: it is not in scale tiny"]


def test_accuracy_shows_mean_std_difference_and_rounds(plan):
    table1 = replace(plan, experiment=load_experiment("table1"))
    block = cells.accuracy_blocks(table1)[0]
    assert cells.cell_text(block.rows["FedAvg"][0]) == "72.00 ± 0.00 (71.41, +0.59)"
    assert cells.cell_text(block.rows["FedAvg"][1]) == "not run (76.82)"
    assert block.rows["FedAvg"][-1] == "4 x 2 seeds"
    assert cells.cell_text(block.rows["Centralized"][0]) == "100.00 (85.72, +14.28)"


def test_unfinished_and_diverged_runs_say_so(plan):
    assignments = plan.runs("cifar10", 0.2, {"algorithm": "fedavg"})
    make_run(assignments[0].folder, [0.1, 0.5], alpha=0.2, rounds=4, finished=False)
    table1 = replace(plan, experiment=load_experiment("table1"))
    cell = cells.accuracy_blocks(table1)[0].rows["FedAvg"][1]
    assert cell.rounds == "2 of 4 x 1 of 2 seeds"
    (assignments[0].folder / "failure.txt").write_text("training diverged in round 3")
    assert cells.cell_text(cells.accuracy_blocks(table1)[0].rows["FedAvg"][1]) == "diverged (76.82)"


def test_formats_hold_the_same_cells(plan):
    blocks = cells.convergence_blocks(plan, "measured")
    markdown = cells.markdown("Title", blocks, ["A note."])
    assert re.search(r"\| FedSeq +\| ", markdown)
    assert markdown.count("## ") == 6
    lines = list(csv.DictReader(io.StringIO(cells.csv(blocks))))
    (line,) = [one for one in lines if one["row"] == "FedSeq" and one["column"].startswith("80% =") and one["ours"]]
    assert (line["ours"], line["published"], line["difference"], line["seeds"]) == ("2.0", "991", "-989.0", "2")
    assert sum(1 for one in lines if one["published"] or one["note"]) >= 198
    latex = cells.latex("Title", blocks)
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 6
    assert r"$\pm$" in latex
    assert "70\\% = 70.0\\%" in latex


def test_a_cell_without_a_published_value():
    assert cells.cell_text(cells.Cell(Stat(1.5, None, 1))) == "1.50 (-)"
    assert cells.cell_text("plain") == "plain"


def test_a_tuning_grid_has_numbers_of_ours_alone(plan):
    tuning = replace(plan, experiment=load_experiment("tuning-fedprox"))
    (assignment, _) = tuning.runs("cifar10", 0, tuning.experiment.rows["FedProx, mu = 1e-3"])
    make_run(assignment.folder, [0.25, 0.5], algorithm="fedprox", mu=0.001, rounds=2)
    block = cells.accuracy_blocks(tuning)[0]
    assert cells.cell_text(block.rows["FedProx, mu = 1e-3"][0]) == "50.00"
    assert cells.cell_text(block.rows["FedProx, mu = 1e-4"][0]) == "not run"
