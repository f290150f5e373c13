"""The tables of docs/examples say what `fedseq compare` makes of the published runs."""

from pathlib import Path

import pytest

from fedseq.cli import main

ROOT = Path(__file__).parents[2]


def test_the_table_at_equal_rounds_is_what_compare_tells(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(ROOT / "results" / "smartwatch"), "--at", "30", "--markdown"]) == 0
    compared = [line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    page = (ROOT / "docs" / "examples" / "smartwatch.md").read_text()
    table = page.partition("<!-- begin: smartwatch at equal rounds -->\n")[2].partition("<!-- end")[0]
    rows = [[cell.strip() for cell in line.split("|")] for line in table.splitlines()[2:]]
    told = [row for row in rows if row[1] != "centralized"]  # which compare takes for the bound
    assert len(told) == 4
    for row in told:
        _, _, _, seeds, accuracy, _, _, time, _ = row
        assert any({seeds, accuracy, time} <= {cell.strip() for cell in line} for line in compared), row
