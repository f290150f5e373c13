"""A published run tells what the run itself tells, in a fraction of its size and without a word about the machine."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import fedseq
from fedseq.basics.errors import FedSeqError
from fedseq.cli import main
from fedseq.report.convergence import Bound, compare
from fedseq.report.costs import run_costs
from fedseq.report.run_tables import comparison_csv
from fedseq.runs.reading import Run, read_run
from fedseq.simulation.clock import WhatIf

OPTIONS: dict[str, Any] = {
    "dataset": "digits",
    "grouping": "random",
    "eval_every": 2,
    "engine": "serial",
    "client_dropout": 0.3,
    "lr": 0.1,
    "checkpoint_every": 5,
}


@pytest.fixture
def run() -> Run:
    fedseq.run(**OPTIONS, rounds=6, folder="runs/mine")
    return read_run(Path("runs/mine"))


def published() -> Run:
    assert main(["publish", "runs", "--to", "results"]) == 0
    return read_run(Path("results/mine"))


def test_tables_are_the_same(run: Run) -> None:
    copy = published()
    assert copy.finished
    assert copy.evaluations == run.evaluations
    bound = Bound(0.5, "as given")
    ours, theirs = (comparison_csv(compare([one], bound)) for one in (copy, run))
    assert ours == theirs
    assert "simulated_seconds" in ours


def test_costs_add_up(run: Run) -> None:
    copy = published()
    ours, theirs = run_costs(copy), run_costs(run)
    assert ours.rounds == (2, 4, 6)
    for name in ("updates", "bytes"):
        assert getattr(ours, name) == getattr(theirs, name)[1::2]
    assert ours.seconds == pytest.approx(theirs.seconds[1::2], abs=1e-3)
    assert sum(len(line["skipped"]) for line in run.metrics) > 0
    ours_skipped, skipped = ([hop for line in one.metrics for hop in line["skipped"]] for one in (copy, run))
    assert ours_skipped == skipped


def test_other_clients_cannot_be_simulated_for_it(run: Run) -> None:
    """Who trained is not listed any more: no time is better than one of other clients."""
    assert run_costs(published(), WhatIf(client_speed=1.0)).seconds == ()


def test_what_is_left_out_and_what_stays(run: Run) -> None:
    place = published().folder
    names = {file.name for file in place.iterdir()}
    sides = {"environment.json", "clients.json", "superclients.json", "SHA256SUMS"}
    assert names == {"config.yaml", "metrics.jsonl", *sides}
    assert run.config.checkpoint_every == 5  # of where it was computed
    assert read_run(place).config.checkpoint_every is None
    assert read_run(place).config.lr == 0.1
    environment = json.loads((place / "environment.json").read_text())
    assert environment["seed"] == 0
    assert "platform" not in environment
    sums = (place / "SHA256SUMS").read_text().splitlines()
    assert {line.split("  ")[1] for line in sums} == {*names, "weights.safetensors"} - {"SHA256SUMS"}
    assert sums[-1] in (run.folder / "SHA256SUMS").read_text().splitlines()
    copied, kept = read_run(place).details, read_run(run.folder).details
    assert copied.superclients == kept.superclients
    assert copied.label_counts == kept.label_counts


def test_the_same_bytes_each_time(run: Run) -> None:
    contents = []
    for parent in ("one", "two"):
        assert main(["publish", "runs/mine", "--to", parent]) == 0
        contents.append({file.name: file.read_bytes() for file in Path(parent, "mine").iterdir()})
    assert contents[0] == contents[1]


def test_nothing_is_overwritten_and_nothing_published_twice_over(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    published()
    assert main(["publish", "runs/mine", "--to", "results"]) == 2
    assert "never overwritten" in capsys.readouterr().err


def test_its_model_is_not_there(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    published()
    with pytest.raises(FedSeqError, match="published without"):
        read_run(Path("results/mine")).weights()
    assert main(["resume", "results/mine"]) == 2  # nothing to continue from, and nothing is begun anew
    assert read_run(Path("results/mine")).evaluations == run.evaluations


def test_an_unfinished_run_stays_unfinished() -> None:
    fedseq.run(**OPTIONS, rounds=2, folder="runs/mine")
    Path("runs/mine/weights.safetensors").unlink()
    Path("runs/mine/SHA256SUMS").unlink()
    assert not published().finished


def test_all_or_nothing(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is damaged, and two of one name, are found before the first is written."""
    fedseq.run(**OPTIONS, rounds=2, folder="others/mine")
    assert main(["publish", "runs", "others", "--to", "results"]) == 2
    assert "would be published under one name" in capsys.readouterr().err
    fedseq.run(**OPTIONS, rounds=2, folder="runs/zero")
    Path("runs/zero/metrics.jsonl").write_text("[")
    assert main(["publish", "runs", "--to", "results"]) == 2
    assert "runs/zero is unreadable" in capsys.readouterr().err
    assert not Path("results").exists()


@pytest.mark.parametrize("name", ["weights.safetensors", "clients.json", "superclients.json"])
def test_a_damaged_run_is_healed_before_it_is_published(
    run: Run, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run.folder / name
    whole = bytearray(file.read_bytes())
    file.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    assert main(["publish", "runs", "--to", "results"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert re.search(rf"{name} (in runs/mine changed since the run ended|is not what the run wrote)", told)
    assert not Path("results").exists()
    if name != "superclients.json":  # which a run goes on from: it is not made again
        assert main(["resume", "runs/mine"]) == 0
        assert file.read_bytes() == whole
    else:
        file.write_bytes(whole)
    assert published().evaluations == run.evaluations


def test_from_inside_its_folder(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.folder)
    assert main(["publish", ".", "--to", "../../results"]) == 0
    assert read_run(Path("../../results/mine")).evaluations == run.evaluations


def test_a_published_run_is_not_published_again(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    published()
    assert main(["publish", "results/mine", "--to", "again"]) == 2
    assert "published already" in capsys.readouterr().err
    assert not Path("again").exists()


def test_nothing_is_tracked_into_a_published_run(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    copy = published()
    assert main(["report", "results", "--track", "tensorboard"]) == 2
    assert "results/mine is a published run, and --track would write into it" in capsys.readouterr().err
    assert not (copy.folder / "tracking").exists()
    assert not Path("report.html").exists()
    assert main(["report", "results"]) == 0


def test_a_published_run_is_repeated_and_not_continued(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    published()
    assert main(["resume", "results/mine", "--rounds", "8"]) == 2
    assert "Repeat it: fedseq run results/mine/config.yaml --out OTHER" in capsys.readouterr().err
    assert main(["compare", "results/mine", "--client-speed", "5"]) == 0
    assert "others cannot be tried: results/mine" in " ".join(capsys.readouterr().out.split())
    assert main(["compare", "runs/mine", "--client-speed", "5"]) == 0
    assert "cannot be tried" not in capsys.readouterr().out
