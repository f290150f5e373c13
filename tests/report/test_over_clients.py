"""How the model does for each client, in the report and in the comparison."""

import json
from pathlib import Path
from typing import Any

import pytest

from fedseq.basics.errors import FedSeqError
from fedseq.cli import main
from fedseq.report import page
from fedseq.report.page import over_clients, summarise
from fedseq.runs.reading import read, read_run

from .builders import make_run


def _run(folder: Path, *accuracies: Any, **options: Any) -> Path:
    """A round for each list of the clients' accuracies, of which the model's is the mean."""
    made = make_run(folder, [sum(values) / len(values) for values in accuracies], **options)
    lines = [json.loads(line) for line in (made / "metrics.jsonl").read_text().splitlines()]
    for line, values in zip(lines, accuracies, strict=True):
        line.update(client_accuracies=values, client_mean=line["accuracy"], client_worst_decile=min(values))
        line.update(client_median=sorted(values)[len(values) // 2], client_std=0.25)
    (made / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return made


def test_the_distribution_over_clients_by_hand(tmp_path: Path) -> None:
    """Of 0.05, 0.55 and 1.0 one client each is in the first, sixth and last tenth; then all are in the last."""
    found = over_clients(read_run(_run(tmp_path / "a", [0.05, 0.55, 1.0], [0.9, 0.95, 1.0])))
    third = 1 / 3
    assert found == {
        "rounds": [1, 2],
        "tenths": [[third, 0, 0, 0, 0, third, 0, 0, 0, third], [0, 0, 0, 0, 0, 0, 0, 0, 0, 1.0]],
        "clients": 3,
        "last": {"mean": pytest.approx(0.95), "median": 0.95, "worst_decile": 0.9, "std": 0.25},
    }


def test_what_is_no_distribution_is_left_out(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", [0.5, 0.6, 0.7, 0.8])
    assert over_clients(read_run(folder)) is None
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line, nonsense in zip(lines, ("<b>", [], [2.0], ["a"]), strict=True):
        line["client_accuracies"] = nonsense
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(FedSeqError, match=r"line 1 of .*metrics\.jsonl is damaged: client_accuracies"):
        read_run(folder)
    page.render(summarise([read(folder)]))


def test_compare_shows_the_worst_decile_beside_the_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _run(tmp_path / "runs" / "a", [0.2, 0.6], [0.5, 0.9])
    make_run(tmp_path / "runs" / "b", [0.3, 0.4], algorithm="fedseq")
    assert main(["compare", str(tmp_path / "runs")]) == 0
    header, _, first, second = capsys.readouterr().out.splitlines()[:4]
    assert "final accuracy | mean over clients | worst decile" in " ".join(header.split())
    assert "70.00% | 70.00% | 50.00%" in " ".join(first.split())
    assert "40.00% | - | -" in " ".join(second.split())
    assert main(["compare", str(tmp_path / "runs"), "--csv"]) == 0
    assert "client_worst_decile" in capsys.readouterr().out.splitlines()[0]


def test_a_demo_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--dataset", "smartwach"]) == 2
    assert "Did you mean 'smartwatch'?" in capsys.readouterr().err
