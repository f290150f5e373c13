"""help, doctor, completion, python -m fedseq."""

import io
import shutil
import subprocess
import sys

import pytest
from rich.console import Console

from fedseq.cli import COMMANDS, data, doctor, main
from fedseq.options.config import all_options


def test_python_dash_m_is_the_command():
    asked = subprocess.run([sys.executable, "-m", "fedseq", "--version"], capture_output=True, text=True)
    assert asked.returncode == 0
    assert asked.stdout.startswith("fedseq 0.")


def test_an_unknown_option_before_any_command_is_an_error(capsys):
    assert main(["--foo"]) == 2
    assert "unknown option '--foo'" in capsys.readouterr().err
    assert main(["-x"]) == 2
    assert "See: fedseq --help" in capsys.readouterr().err


def helped(capsys, *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*words])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_help_lists_all_commands_those_of_every_day_first(capsys):
    out = helped(capsys, "--help")
    listed = [words[0] for line in out.splitlines() if line.startswith("  ") and (words := line.split())]
    assert tuple(name for name in listed if not name.startswith("-")) == COMMANDS
    assert COMMANDS[:5] == ("run", "resume", "compare", "report", "predict")
    assert all(len(line) <= 80 for line in out.splitlines())
    assert helped(capsys, "help") == out


def test_help_of_one_command_has_one_line_of_usage_and_every_option(capsys):
    out = helped(capsys, "run", "--help")
    assert out.startswith("usage: fedseq run [CONFIG.yaml] [OPTIONS]\n\n")
    assert all(f"  {row.flag} " in out for row in all_options().values())
    assert helped(capsys, "help", "run") == out
    assert main(["help", "swep"]) == 2
    assert "Did you mean 'sweep'" in capsys.readouterr().err


def test_doctor_tells_of_everything_on_one_screen(capsys):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert all(
        word in out for word in ("fedseq", "Python", "torch", "cores", "convolutions", "GPU", "cache", "disk here")
    )
    assert len(out.splitlines()) <= 24


def test_doctor_fits_a_terminal_of_80_columns_and_24_lines(monkeypatch):
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    monkeypatch.setattr(doctor, "make_console", lambda: console)
    assert main(["doctor"]) == 0
    lines = console.file.getvalue().splitlines()
    assert len(lines) <= 23  # and the prompt below
    assert all(len(line) <= 80 for line in lines if "/" not in line)  # a path is not broken


def complete(script, *words):
    """What bash would offer for the last of these words."""
    quoted = " ".join(f"'{word}'" for word in words)
    ask = f'COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _fedseq; echo "${{COMPREPLY[@]}}"'
    return subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")
def test_bash_completes_commands_options_and_values(capsys):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert complete(script, "fedseq", "swe") == ["sweep"]
    assert complete(script, "fedseq", "run", "--superclient-e") == ["--superclient-epochs"]
    assert complete(script, "fedseq", "run", "--grouping", "ex") == ["exchange"]
    assert complete(script, "fedseq", "run", "--dataset", "cifar") == ["cifar10", "cifar100"]
    assert complete(script, "fedseq", "federation", "in") == ["init"]
    assert complete(script, "fedseq", "data", "") == [
        *["list", "get", "show", "--help", "--to", "--figure", "--force", "--csv"],
        *(all_options()[name].flag for name in all_options() if name in data.OPTIONS),
    ]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script_too(shell, capsys):
    assert main(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert "superclient-epochs" in out
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=out, text=True, check=True)
