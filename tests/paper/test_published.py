"""The paper's numbers, counted and spot-checked by hand."""

import pytest

from fedseq.paper import published_tables as published
from fedseq.paper.plan import NAMES, load_experiment


def cells(table):
    return [cell for rows in table.values() for row in rows.values() for cell in row]


def test_every_cell_is_there():
    assert len(cells(published.TABLE_1)) == 10 * 3 * 2
    assert len(published.CENTRALIZED) == 2
    assert [len(block) for block in cells(published.TABLE_2)] == [3] * (11 * 3 * 2)
    assert len(cells(published.TABLE_3)) == 7 * 3 * 2
    assert len(cells(published.TABLE_4)) == 15 * 2 * 2


def test_cells_that_the_paper_leaves_open():
    assert cells(published.TABLE_1).count(None) == 1  # FedDyn on CIFAR-100 at alpha 0
    rates = [rate for block in cells(published.TABLE_2) for rate in block]
    assert sum(rate[0] is None for rate in rates) == 21
    assert all(rate[0] is not None for rate in rates if rate[1] is not None)


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
def test_published_speedups_follow_from_published_rounds(dataset):
    """FedAvg's round over the row's, but for the paper's rounding: a slip of the pen here would show."""
    rows = published.TABLE_2[dataset]
    for name, blocks in rows.items():
        for block, base in zip(blocks, rows["FedAvg"], strict=True):
            for (round_, factor), (reference, _) in zip(block, base, strict=True):
                if factor is not None:
                    assert reference / round_ == pytest.approx(factor, abs=0.011), name
                elif round_ is not None:
                    assert reference is None, name


def test_tables_agree_where_they_show_the_same_run():
    for dataset, rows in published.TABLE_1.items():
        assert rows["FedSeqInter"] == published.TABLE_3[dataset]["FedSeqInter / conf / greedy / KL"]


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_the_experiments_are_the_rows_of_the_tables(name):
    experiment = load_experiment(name)
    if experiment.published:
        for dataset, rows in getattr(published, experiment.published).items():
            assert dataset in experiment.datasets
            assert list(rows) == list(experiment.rows) or set(rows) == set(experiment.rows)


def test_table_4_is_found_by_our_names():
    from fedseq.options.tables import valid_criteria
    from fedseq.paper.published_tables import TABLE_4, published_quality

    assert published_quality("cifar10", "confidence", "kl", "greedy") == (0.271, 0.870)
    assert published_quality("cifar10", None, None, "random") == (0.068, 0.835)
    assert published_quality("digits", None, None, "random") is None
    for dataset, rows in TABLE_4.items():
        found = [published_quality(dataset, *criterion) for criterion in valid_criteria()]
        assert sorted(value for value in found if value) == sorted(map(tuple, rows.values()))
