from dataclasses import replace
from pathlib import Path

import pytest

from fedseq.config import resolve
from fedseq.configfile import from_mapping
from fedseq.errors import FedSeqError
from fedseq.paper.plan import NAMES, Plan, load_experiment, parse_only, selected
from fedseq.paper.scales import SCALES, find_scale
from fedseq.paper.tasks import Task, failure, from_json, is_done, last_record, refuse_other_runs, rounds_left

TINY, PAPER = SCALES["tiny"], SCALES["paper"]


def plan(name, scale=TINY, **options):
    return Plan(load_experiment(name), scale, Path("out"), **options)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_every_artefact_has_valid_work_at_every_scale(name, scale):
    tasks = list(plan(name, scale).tasks())
    assert tasks
    by_folder = {}
    for task in tasks:
        assert resolve(task.config) == task.config
        assert by_folder.setdefault((task.folder, task.epochs), task) == task  # a folder means one thing


def test_artefacts_share_runs():
    tables = [set(plan(name).tasks()) for name in ("table1", "table2", "table3", "fig-curves", "fig-es")]
    assert tables[0] < tables[1]  # table2 has FedSeq 2 as well
    assert tables[3] < tables[0]
    assert len(tables[2] - tables[1]) == 4 * 3 * 3  # criteria that no other table has
    assert len(tables[4] - tables[1]) == 2 * 3  # E_S = 2 and 4


def test_the_papers_budget_is_the_papers():
    runs = {task.config.dataset: task.config for task in plan("fig-curves", PAPER).tasks()}
    assert runs["cifar10"].rounds == 10_000
    assert runs["cifar100"].rounds == 20_000
    assert runs["cifar10"].num_clients == 500
    assert [task.config.rounds for task in plan("table1", PAPER).tasks() if task.config.algorithm == "centralized"] == [
        300
    ] * 2
    assert {(task.config.superclient_epochs, task.config.rounds) for task in plan("fig-es", PAPER).tasks()} == {
        (1, 10_000), (2, 5_000), (4, 2_500),
    }  # fmt: skip


def test_data_that_is_not_there_is_not_planned():
    without = plan("table1", PAPER, absent={"cifar100": "no file"})
    assert {task.config.dataset for task in without.tasks()} == {"cifar10"}
    assert without.why_not("cifar100") == "there is no cifar100 data"
    assert plan("table1").why_not("cifar100") == "it is not in scale tiny"


def test_only_selects_by_any_option_and_keeps_the_bound():
    only = parse_only("algorithm=fedseq|fedavg,alpha=0")
    chosen = [task.config for task in plan("table2").tasks() if selected(task, only)]
    assert {(config.algorithm, config.alpha) for config in chosen} == {("fedavg", 0), ("fedseq", 0), ("centralized", 0)}
    assert len(chosen) == 1 + 3 * 3  # FedSeq twice: two criteria
    assert parse_only(None) == {}
    for wrong in ("alpha", "alfa=0", "alpha=low"):
        with pytest.raises(FedSeqError):
            parse_only(wrong)


def test_unknown_names_are_refused():
    with pytest.raises(FedSeqError, match="Did you mean 'table1'"):
        load_experiment("tabel1")
    with pytest.raises(FedSeqError, match="unknown scale"):
        find_scale("huge")


def test_tasks_travel_as_text_and_know_how_far_they_are(tmp_path):
    from report.builders import make_run

    folder = make_run(tmp_path / "a", [0.1, 0.2], rounds=5, finished=False)
    config = resolve(from_mapping({"algorithm": "fedavg", "rounds": 5, "num_clients": 8}))
    task = Task(folder, config)
    assert from_json(task.to_json()) == task
    assert rounds_left(task) == 3
    assert not is_done(task)
    assert last_record(folder)["round"] == 2
    (folder / "weights.safetensors").write_bytes(b"")
    assert not is_done(task)  # a finished run of fewer rounds
    assert is_done(replace(task, config=replace(config, rounds=2)))
    assert is_done(replace(task, config=replace(config, until_accuracy=0.15)))
    refuse_other_runs(task)
    with pytest.raises(FedSeqError, match="--lr"):
        refuse_other_runs(Task(folder, replace(config, lr=9.0)))
    assert rounds_left(Task(tmp_path / "none", config)) == 5


def test_a_run_that_diverged_is_not_tried_again(tmp_path):
    from report.builders import make_run

    folder = make_run(tmp_path / "a", [0.1], rounds=5, finished=False)
    (folder / "failure.txt").write_text("training diverged in round 2\n")
    assert failure(folder) == "training diverged in round 2"
    assert is_done(Task(folder, resolve(from_mapping({"algorithm": "fedavg", "rounds": 5}))))
