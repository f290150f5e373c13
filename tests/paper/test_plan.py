from pathlib import Path

import pytest

from fedseq.basics.errors import FedSeqError
from fedseq.options.resolve import resolve
from fedseq.paper.plan import NAMES, SCALES, TUNING, PaperPlan, find_scale, load_experiment, parse_only, select

TINY, PAPER = SCALES["tiny"], SCALES["paper"]


def plan(name, scale=TINY, **options):
    return PaperPlan(load_experiment(name), scale, Path("out"), **options)


@pytest.mark.parametrize("name", [*NAMES, *TUNING])
@pytest.mark.parametrize("scale", SCALES.values(), ids=lambda scale: scale.name)
def test_every_artefact_has_valid_work_at_every_scale(name, scale):
    assignments = list(plan(name, scale).assignments())
    assert assignments or (name, scale.name) == ("tuning-feddyn-lr", "tiny")  # which has no CIFAR-100
    by_folder = {}
    for assignment in assignments:
        assert resolve(assignment.config.options()) == assignment.config
        assert (
            by_folder.setdefault((assignment.folder, assignment.epochs), assignment) == assignment
        )  # a folder means one thing


def test_artefacts_share_runs():
    tables = [set(plan(name).assignments()) for name in ("table1", "table2", "table3", "fig-curves", "fig-es")]
    assert tables[0] < tables[1]  # table2 has FedSeq 2 as well
    assert tables[3] < tables[0]
    assert len(tables[2] - tables[1]) == 4 * 3 * 3  # criteria that no other table has
    assert len(tables[4] - tables[1]) == 2 * 3  # E_S = 2 and 4


def test_tuning_tries_the_papers_values_and_shares_the_chosen_ones():
    grids = {name: list(plan(name, PAPER).assignments()) for name in TUNING}
    tried = {"mu": set(), "alpha_dyn": set()}
    for assignment in (*grids["tuning-fedprox"], *grids["tuning-feddyn"]):
        for name, value in assignment.config.rules:
            if name in tried:
                tried[name].add((assignment.config.algorithm.partition("+")[0] == "fedseqinter", value))
    values = {
        (name, inter): sorted(v for i, v in found if i == inter) for name, found in tried.items() for inter in (0, 1)
    }
    assert values["mu", False] == [1e-4, 1e-3, 1e-2]
    assert values["mu", True] == [1e-2, 0.1, 1, 10]
    assert values["alpha_dyn", False] == [1e-3, 1e-2, 0.1]
    assert values["alpha_dyn", True] == [1e-2, 0.1, 1]
    table1 = set(plan("table1", PAPER).assignments())
    assert len(table1 & set(grids["tuning-fedprox"])) == 3 * 3 * 2  # the chosen ones: algorithms, alphas, data sets
    assert {one.config.lr for one in grids["tuning-feddyn-lr"]} == {0.01, 0.1}


def test_the_papers_budget_is_the_papers():
    runs = {assignment.config.dataset: assignment.config for assignment in plan("fig-curves", PAPER).assignments()}
    assert runs["cifar10"].rounds == 10_000
    assert runs["cifar100"].rounds == 20_000
    assert runs["cifar10"].num_clients == 500
    configs = [assignment.config for assignment in plan("table1", PAPER).assignments()]
    assert [config.rounds for config in configs if config.algorithm == "centralized"] == [300] * 2
    configs = [assignment.config for assignment in plan("fig-es", PAPER).assignments()]
    passes = {(config.superclient_epochs, config.rounds) for config in configs}
    assert passes == {(1, 10_000), (2, 5_000), (4, 2_500)}


def test_data_that_is_not_there_is_not_planned():
    without = plan("table1", PAPER, absent={"cifar100": "no file"})
    assert {assignment.config.dataset for assignment in without.assignments()} == {"cifar10"}
    assert without.why_not("cifar100") == "there is no cifar100 data"
    assert plan("table1").why_not("cifar100") == "it is not in scale tiny"


def test_only_selects_by_any_option_and_keeps_the_bound():
    only = parse_only("algorithm=fedseq|fedavg,alpha=0")
    chosen = [assignment.config for assignment in select(list(plan("table2").assignments()), only)]
    assert {(config.algorithm, config.alpha) for config in chosen} == {("fedavg", 0), ("fedseq", 0), ("centralized", 0)}
    assert len(chosen) == 1 + 3 * 3  # FedSeq twice: two criteria
    assert parse_only("seed=1,seed=2") == {"seed": {1, 2}}
    assert parse_only(None) == {}
    for wrong in ("alpha", "alfa=0", "alpha=low"):
        with pytest.raises(FedSeqError):
            parse_only(wrong)


def test_only_refuses_what_no_run_has():
    assignments = list(plan("table3").assignments())
    with pytest.raises(FedSeqError, match=r"unknown value of --only algorithm 'fedsq'\. Did you mean 'fedseq'"):
        select(assignments, parse_only("algorithm=fedsq"))
    tuning = list(plan("tuning-fedprox").assignments())
    assert {dict(one.config.rules)["mu"] for one in select(tuning, parse_only("mu=0.001"))} == {0.001}
    with pytest.raises(FedSeqError, match="no run has all"):
        select(assignments, parse_only("algorithm=fedseqinter,grouping=random"))


def test_unknown_names_are_refused():
    with pytest.raises(FedSeqError, match="Did you mean 'table1'"):
        load_experiment("tabel1")
    with pytest.raises(FedSeqError, match="unknown scale"):
        find_scale("huge")
