"""What is seen on a terminal of 80 columns, and on a pipe."""

import io
import re

import pytest
from rich.console import Console

from fedseq.cli import main
from fedseq.cli import run as run_command
from fedseq.cli.console import ConsoleReporter, print_table
from fedseq.options.resolve import resolve
from fedseq.report.formats import TextTable, to_csv, to_latex, to_markdown

LONG = "runs/a-sweep-with-a-long-name/fedseqinter+fedprox-lr0.03-exchange-alpha0.2-seed0"
WIDE = TextTable(
    ["run", "final accuracy", "to 70% = 68.7%", "speedup at 70% / 80% / 90%", "empty"],
    [[LONG, "91.20% ± 0.31%", "> 60", "2.1x / 3.0x / > 4.2x", ""], ["short", "5%", "3", "-", ""]],
    caption="targets are shares of 97.88% (best of these runs, fedseq; add a centralized run for the real bound)",
)


def terminal(width=80):
    return Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)


def test_a_table_that_does_not_fit_becomes_blocks_that_break_no_word():
    console = terminal()
    print_table(console, WIDE)
    lines = console.file.getvalue().splitlines()
    assert LONG in lines  # whole, on a line of its own
    assert "  final accuracy: 91.20% ± 0.31% · to 70% = 68.7%: > 60" in lines
    assert "  speedup at 70% / 80% / 90%: 2.1x / 3.0x / > 4.2x" in lines
    assert all(len(line) <= 80 for line in lines if line != LONG)
    assert "empty" not in console.file.getvalue()


def test_a_table_that_fits_is_drawn_on_one_line_a_row():
    console = terminal(200)
    print_table(console, WIDE)
    assert sum("91.20%" in line and LONG in line for line in console.file.getvalue().splitlines()) == 1


def test_a_head_may_break_between_words_and_a_cell_may_not():
    table = TextTable(["algorithm", "mean of 5 evaluations to 70% / 80%", "updates to 80%", "time"],
                      [["fedseqinter", "10 / 19 / > 20", "147 ± 3", "14.4 s"]])  # fmt: skip
    console = terminal(60)
    print_table(console, table)
    lines = console.file.getvalue().splitlines()
    assert all(len(line) <= 60 for line in lines)
    assert sum("│ fedseqinter │ 10 / 19 / > 20 │ 147 ± 3 │ 14.4 s │" in line for line in lines) == 1


def test_the_progress_line_keeps_bar_count_and_time_left():
    console = terminal()
    config = resolve({"algorithm": "fedseqinter+fedprox+fedavgm", "rounds": 1000})
    reporter = ConsoleReporter(console, verbose=False)
    reporter.begin(config, "runs/x", 0)
    seconds = {"train": 8.0, "evaluate": 1.0, "overhead": 1.0}
    reporter.round({"round": 250, "accuracy": 0.5, "loss": 1.25, "seconds": seconds})
    console.print(reporter.progress.get_renderable())
    (line,) = [line for line in console.file.getvalue().splitlines() if line.strip()]
    assert len(line) <= 80
    assert line.count("━") == 5  # a quarter of a bar of 20
    assert "250/1000" in line.replace(" ", "")
    assert re.search(r"--:--|\d:\d\d", line)
    assert "accuracy 0." in line


def test_formats():
    table = TextTable(["a_b", "n"], [["x & y", "1 ± 2"], ["50 %", ""]], "Title", "caption")
    assert to_markdown(table) == (
        "Title\n\n| a_b   |     n |\n| ----- | ----: |\n| x & y | 1 ± 2 |\n| 50 %  |       |\n\ncaption\n"
    )
    assert r"x \& y & 1 $\pm$ 2 \\" in to_latex(table)
    assert to_csv(["a", "b"], [["x,y", None], ["z", 0.1]]) == 'a,b\n"x,y",\nz,0.1\n'


@pytest.mark.parametrize("form", ["--csv", "--latex", "--markdown"])
def test_compare_prints_what_programs_read(form, tmp_path, capsys):
    from fedseq.cli import main
    from report.builders import make_run

    make_run(tmp_path / "a", [0.5, 1.0], algorithm="centralized")
    make_run(tmp_path / "b", [0.25, 0.75, 0.875])
    assert main(["compare", str(tmp_path), form]) == 0
    out = capsys.readouterr().out
    if form == "--csv":
        header, *lines = [line.split(",") for line in out.splitlines()]
        assert len(lines) == 6  # two series at three targets
        (line,) = [dict(zip(header, one, strict=True)) for one in lines if one[1] == "fedavg" and "0.8" in one]
        found = [line[name] for name in ("final_accuracy", "target", "round", "speedup")]
        assert found == ["0.875", "0.8", "3.0", "1.0"]
    else:
        assert ({"--latex": r"\toprule", "--markdown": "| ----"}[form]) in out


def test_a_run_ends_with_a_command_in_one_piece_and_counts_in_good_english(monkeypatch, tmp_path):
    console, folder = terminal(), tmp_path / ("a-folder-with-a-long-name-" * 3)
    monkeypatch.setattr(run_command, "make_console", lambda: console)
    short = ["--num-clients", "2", "--fraction", "1", "--local-epochs", "1", "--rounds", "1", "--engine", "serial"]
    assert main(["run", "--grouping", "random", *short, "--out", str(folder)]) == 0
    shown = console.file.getvalue()
    assert f"compare runs with: fedseq compare {folder} OTHER\n" in shown
    assert "1 superclient of 2 clients (random)" in shown


def test_no_text_of_a_csv_is_a_formula():
    cells = ["=1+1", "+1", "-1 and more", "@sum", "\tx", "-", "a=b", -1.5, None]
    assert to_csv(["=c"], [cells]) == "'=c\n'=1+1,'+1,'-1 and more,'@sum,'\tx,-,a=b,-1.5,\n"
