"""Presets: complete, of options that their runs use, and under whatever a user gives."""

import pytest
import yaml

from fedseq.cli import main
from fedseq.options.config_files import presets, read_preset
from fedseq.options.resolve import resolve
from fedseq.sweep.assignments import plan_grid


@pytest.mark.parametrize("name", presets())
def test_every_preset_is_described_and_holds_only_what_its_run_uses(name):
    assert presets()[name]
    preset = read_preset(name)
    used = resolve(preset).options()
    assert {option: used[option] for option in preset} == preset


@pytest.mark.parametrize("name", [name for name in presets() if name.startswith("paper-")])
def test_the_papers_presets_are_the_defaults_for_the_papers_rounds(name):
    """Written out, so that they stay what they are when a default changes; the paper says nothing of evaluations."""
    preset = read_preset(name)
    assert preset["rounds"] == {"cifar10": 10_000, "cifar100": 20_000}[preset["dataset"]]
    chosen = {"dataset": preset["dataset"], "algorithm": preset["algorithm"], "min_samples": preset.get("min_samples")}
    assert resolve(preset) == resolve({**chosen, "eval_every": preset["eval_every"], "rounds": preset["rounds"]})


def test_the_presets_of_the_paper_and_the_record():
    paper = {f"paper-{rule}-{data}" for rule in ("fedavg", "fedseq", "fedseq-feddyn", "fedseqinter")
             for data in ("cifar10", "cifar100")}  # fmt: skip
    assert set(presets()) == paper | {"long-chains-cifar10", "long-chains-cifar100"}
    record = resolve(read_preset("long-chains-cifar10"))
    assert (record.algorithm, dict(record.rules)) == ("fedseq+fedacg+window", {"fedacg_lambda": 0.9, "window": 5})
    assert (record.grouping, record.min_samples, record.lr, record.superclients_per_chain) == (
        "exchange",
        1000,
        0.02,
        5,
    )


def printed(capsys, *words: str) -> dict:
    assert main(["run", *words, "--print-config"]) == 0
    return yaml.safe_load(capsys.readouterr().out)


def test_flags_and_files_go_over_a_preset(capsys, tmp_path):
    assert printed(capsys, "--preset", "long-chains-cifar10")["fedacg_lambda"] == 0.9
    file = tmp_path / "mine.yaml"
    file.write_text("lr: 0.04\nfedacg_lambda: 0.5\n")
    config = printed(capsys, str(file), "--preset", "long-chains-cifar10", "--fedacg-lambda", "0.8")
    assert (config["lr"], config["fedacg_lambda"], config["min_samples"]) == (0.04, 0.8, 1000)


def test_what_the_run_does_not_use_of_a_preset_is_dropped_and_what_is_given_is_refused(capsys):
    config = printed(capsys, "--preset", "long-chains-cifar10", "--algorithm", "fedavg")
    assert config["lr"] == 0.02
    assert not {"fedacg_lambda", "grouping"} & config.keys()
    words = ["--preset", "long-chains-cifar10", "--algorithm", "fedavg", "--fedacg-lambda", "0.5"]
    assert main(["run", *words, "--print-config"]) == 2
    assert "--fedacg-lambda has no effect" in capsys.readouterr().err


def test_presets_are_listed_and_an_unknown_one_is_refused(capsys):
    assert main(["run", "--preset", "list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in presets())
    assert main(["run", "--preset", "long-chains-cifar1"]) == 2
    assert "unknown preset 'long-chains-cifar1'. Did you mean 'long-chains-cifar10'?" in capsys.readouterr().err


def test_a_sweep_of_a_preset(tmp_path):
    grid = plan_grid({"seed": "1-3", "algorithm": "fedavg,fedseq+fedacg"}, tmp_path, read_preset("long-chains-cifar10"))
    configs = [assignment.config for assignment in grid.values]
    assert {(config.algorithm, config.seed) for config in configs} == {
        (algorithm, seed) for algorithm in ("fedavg", "fedseq+fedacg") for seed in (1, 2, 3)
    }
    assert all(config.lr == 0.02 for config in configs)
