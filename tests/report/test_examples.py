"""The tables of docs/examples are what the commands there make of the published runs."""

from pathlib import Path

import pytest

from fedseq.cli import main

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("name", "round_"), [("smartwatch", 40)])
def test_the_table_of_the_page(name: str, round_: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(ROOT / "results" / name), "--at", str(round_), "--markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = next(number for number, line in enumerate(lines) if f"accuracy at round {round_}" in line)
    table = [line for line in lines[start:] if line.startswith("|")]
    assert len(table) >= 4
    written = (ROOT / "docs" / "examples" / f"{name}.md").read_text().splitlines()
    assert not [line for line in table if line not in written]  # rows come in the order of the files' times
