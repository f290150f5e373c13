"""A name is a row: whatever is added to a table is offered, checked, built, run and resumed like what was there."""

import inspect
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import fedseq
from fedseq.algorithms.base import FEDAVG, Algorithm
from fedseq.basics.errors import FedSeqError
from fedseq.cli import main
from fedseq.grouping.methods import cut
from fedseq.options import tables
from fedseq.options.config_files import coerce
from fedseq.options.option import POSITIVE
from fedseq.options.resolve import resolve
from fedseq.options.tables import (
    AVERAGES,
    LOCAL_RULES,
    METHODS,
    METRICS,
    SERVER_RULES,
    TOPOLOGIES,
    Method,
    Metric,
    Parameter,
    Rule,
    valid_criteria,
)
from fedseq.runs.folder import RunFolder

SHORT = {"dataset": "digits", "rounds": 2, "engine": "serial", "num_clients": 20}
TABLES = [table for table in vars(tables).values() if isinstance(table, tables.Table)]


def shrink(gradient, hop, by):
    gradient.mul_(by)


def shrunk(by: float = 0.5) -> Algorithm:
    """A local rule: every gradient times `by`."""
    return Algorithm("shrunk", correct=partial(shrink, by=by))


def smaller(state, models, examples, setting, inner, keep):
    merged = inner.merge(state, models, examples, setting)
    return {**merged, "weights": keep * merged["weights"]}


def smoothed(inner: Algorithm = FEDAVG, keep: float = 0.9) -> Algorithm:
    """A server rule: the merged model times `keep`."""
    return replace(inner, name=f"{inner.name}+smoothed", merge=partial(smaller, inner=inner, keep=keep))


def in_order(problem, rng):
    return cut(range(len(problem.sizes)), problem.sizes, problem.limits)


def manhattan(group, clients, share):
    return np.abs(clients - group[:, None]).sum(axis=0)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.kind)
def test_every_row_names_something_that_is_there(table):
    for name, row in table.items():
        assert callable(row.load()), name


@pytest.mark.parametrize("table", [LOCAL_RULES, SERVER_RULES, AVERAGES, TOPOLOGIES], ids=lambda table: table.kind)
def test_parameters_are_the_arguments_of_the_rules(table):
    """The row repeats what the function says, as help must not import it: both must agree."""
    for name, row in table.items():
        arguments = {
            key: found
            for key, found in inspect.signature(row.load()).parameters.items()
            if key not in ("inner", "official")  # the latter is for --authors-code
        }
        if name != "trimmed-mean":  # its share is no option
            assert {parameter.argument for parameter in row.parameters} == set(arguments), name
        for parameter in row.parameters:
            assert arguments[parameter.argument].default == parameter.default, name


def test_a_rule_is_one_function_and_one_row(monkeypatch, capsys):
    row = Rule(f"{__name__}:shrunk", "gradients times a factor", (Parameter("by", "by", 0.5, "the factor", POSITIVE),))
    monkeypatch.setitem(LOCAL_RULES, "shrunk", row)
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    assert "--by X" in capsys.readouterr().out
    run = fedseq.run(SHORT, algorithm="fedseq+shrunk+fedavgm", grouping="random", by=0.25)
    assert dict(run.config.rules)["by"] == 0.25
    assert "by: 0.25" in (run.folder / "config.yaml").read_text()
    assert fedseq.resume(run.folder, rounds=3).rounds == 3
    with pytest.raises(FedSeqError, match="--by has no effect in this run: it is for shrunk"):
        resolve({"algorithm": "fedavg", "by": 0.25})
    with pytest.raises(FedSeqError, match="--by must be greater than 0"):
        resolve({"algorithm": "shrunk", "by": -1})


def test_a_method_and_a_metric_are_one_function_and_one_row_each(monkeypatch):
    monkeypatch.setitem(METHODS, "in-order", Method(f"{__name__}:in_order", metrics="none"))
    monkeypatch.setitem(METRICS, "manhattan", Metric(f"{__name__}:manhattan"))
    assert (None, None, "in-order") in set(valid_criteria())
    assert ("classifier-last", "manhattan", "greedy") in set(valid_criteria())
    run = fedseq.run(SHORT, algorithm="fedseq", grouping="in-order", min_samples=300)
    # 1437 examples: 71 or 72 a client, so that five clients hold 300 or more, and four fewer.
    groups = RunFolder(run.folder).read_superclients(20)
    assert groups == [tuple(range(first, first + 5)) for first in (0, 5, 10, 15)]
    chosen = fedseq.run(
        SHORT, algorithm="fedseq", grouping_metric="manhattan", pretrain_epochs=1, approximator="classifier-last"
    )
    assert chosen.config.grouping_metric == "manhattan"


RULES = """
from dataclasses import replace
from functools import partial

from fedseq.algorithms.base import FEDAVG


def smaller(state, models, examples, setting, inner, keep):
    merged = inner.merge(state, models, examples, setting)
    return {**merged, "weights": keep * merged["weights"]}


def smoothed(inner=FEDAVG, keep=0.9):
    return replace(inner, name=f"{inner.name}+smoothed", merge=partial(smaller, inner=inner, keep=keep))
"""


@pytest.mark.parametrize("engine", ["serial", "processes"])
def test_a_rule_of_the_users_own_by_name(tmp_path, engine):
    Path("my_rules.py").write_text(RULES)
    words = ["--dataset", "digits", "--grouping", "random", "--rounds", "2", "--engine", engine, "--num-clients", "20"]
    named = ["--algorithm", "fedseq+fedprox+my_rules:smoothed", "--rule", "smoothed.keep=0.3"]
    assert main(["run", *words, *named, "--out", "named"]) == 0
    assert main(["run", *words, "--algorithm", "fedseq+fedprox", "--out", "plain"]) == 0
    record = (tmp_path / "named" / "config.yaml").read_text()
    assert "smoothed.keep: 0.3" in record
    assert main(["resume", "named", "--rounds", "3", "--trust"]) == 0
    own = fedseq.read_run(tmp_path / "named")
    assert own.rounds == 3
    # The merged model is 0.3 times as long as without the rule after the first round, so its loss differs.
    assert own.metrics[0]["loss"] != fedseq.read_run(tmp_path / "plain").metrics[0]["loss"]


@pytest.mark.slow
def test_a_sweep_over_a_rule_of_the_users_own(tmp_path):
    Path("my_rules.py").write_text(RULES)
    words = ["--dataset", "digits", "--rounds", "1", "--num-clients", "20", "--jobs", "1", "--out", "swept"]
    named = ["--algorithm", "my_rules:smoothed", "--rule", "smoothed.keep=0.3,1.0"]
    assert main(["sweep", *words, *named]) == 0
    names = (f"my_rules-smoothed-smoothed.keep{keep}-alpha0-seed0" for keep in ("0.3", "1"))
    short, whole = (fedseq.read_run(tmp_path / "swept" / name) for name in names)
    assert short.metrics[0]["loss"] != whole.metrics[0]["loss"]


@pytest.mark.parametrize(
    ("named", "words"),
    [
        (["--algorithm", "fedseq+my_rules:nosuch"], "unknown rule in my_rules"),
        (["--algorithm", "fedseq+nosuch:rule"], "cannot import nosuch"),
        (["--algorithm", "my_rules:smoothed", "--rule", "smoothed.kept=1"], "Did you mean 'keep'"),
        (["--algorithm", "fedseq", "--rule", "smoothed.keep=1"], "has no rule smoothed"),
        (["--algorithm", "my_rules:smoothed", "--rule", "keep=1"], "--rule takes RULE.NAME=VALUE"),
    ],
)
def test_mistakes_with_own_rules_are_told(tmp_path, capsys, named, words):
    Path("my_rules.py").write_text(RULES)
    assert main(["run", "--dataset", "digits", *named, "--out", "run"]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(("text", "value"), [("1e-5", 1e-5), ("[2E3, x]", (2000.0, "x")), ("1e5x", "1e5x"), ("3", 3)])
def test_a_rule_takes_numbers_as_people_write_them(text, value):
    assert coerce("mine.rate", text) == value
    assert type(coerce("mine.rate", text)) is type(value)
