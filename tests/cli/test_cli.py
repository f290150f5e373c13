"""The command line as a user meets it: real commands, in a folder of their own."""

import json
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import yaml

from fedseq import __version__
from fedseq.cli import COMMANDS, main
from helpers import start, wait_for

SHORT = ["--dataset", "digits", "--grouping", "random", "--rounds", "2", "--engine", "serial"]


def fedseq(capsys, *words):
    """Exit code, standard output, standard error."""
    try:
        code = main([str(word) for word in words])
    except SystemExit as exit_:
        code = exit_.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def refused(capsys, *words):
    code, out, err = fedseq(capsys, *words)
    assert code == 2, out + err
    assert "Traceback" not in err
    assert err.startswith("fedseq: error: ")
    return err


@pytest.fixture
def run(capsys):
    """A finished run in ./run."""
    assert fedseq(capsys, "run", *SHORT, "--out", "run")[0] == 0
    return Path("run")


def test_run_prints_each_rounds_accuracy_and_where_the_results_are(capsys):
    code, out, _ = fedseq(capsys, "run", *SHORT)
    assert code == 0
    assert re.findall(r"round (\d)/2  accuracy 0\.\d{4}", out) == ["1", "2"]
    assert "results in runs/digits-fedseq-alpha0-seed0" in out
    assert "\x1b" not in out  # plain on a pipe
    fedseq(capsys, "run", *SHORT)
    assert Path("runs/digits-fedseq-alpha0-seed0-2/weights.safetensors").exists()  # a new folder each time


def test_flags_go_over_the_file_and_print_config_shows_what_is_resolved(capsys):
    Path("my.yaml").write_text("rounds: 7\nnum-clients: 20\nalgorithm: fedavg\n")
    code, out, _ = fedseq(capsys, "run", "my.yaml", "--rounds", "3", "--print-config")
    printed = yaml.safe_load(out)
    assert code == 0
    assert (printed["rounds"], printed["num_clients"], printed["algorithm"], printed["lr"]) == (3, 20, "fedavg", 0.03)
    Path("resolved.yaml").write_text(out)
    assert fedseq(capsys, "run", "resolved.yaml", "--print-config")[1] == out
    assert not Path("runs").exists()


def test_a_run_is_never_overwritten(capsys, run):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert "fedseq resume run" in refused(capsys, "run", *SHORT, "--out", "run")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_ls_and_compare(capsys, run):
    fedavg = ["--algorithm", "fedavg", "--rounds", "2", "--engine", "serial", "--out", "other"]
    assert fedseq(capsys, "run", *fedavg)[0] == 0
    _, out, _ = fedseq(capsys, "ls", ".")
    assert re.search(r"\| run +\| digits +\| fedseq +\| finished +\| +0 \| +0 \| +2/2 ", out)
    code, out, _ = fedseq(capsys, "compare", "run", "other", "--figure", "curves.png", "--bound", "0.1")
    assert code == 0
    assert "fedavg" in out
    assert Path("curves.png").read_bytes().startswith(b"\x89PNG")
    Path("curves.png").write_bytes(b"mine")
    assert "exists already" in refused(capsys, "compare", "run", "other", "--figure", "curves.png")
    assert Path("curves.png").read_bytes() == b"mine"
    assert fedseq(capsys, "compare", "run", "other", "--figure", "curves.png", "--force")[0] == 0
    assert Path("curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_runs_own_files_and_what_a_command_reads_are_never_written_over(capsys, run):
    np.save("new.npy", np.zeros((1, 8, 8), np.uint8))
    shutil.copy(run / "weights.safetensors", "alone.safetensors")
    before = {path: path.read_bytes() for path in (*run.rglob("*"), *Path().glob("*")) if path.is_file()}
    for command in (
        ["report", "run", "-o", "run/metrics.jsonl"],
        ["report", "run", "-o", "run/checkpoints/000002.json"],
        ["export", "run", "--format", "torchscript", "--out", "run/weights.safetensors"],
        ["predict", "run", "new.npy", "--csv", "run/model.json"],
    ):
        assert "belongs to the run" in refused(capsys, *command, "--force")
    for command in (
        ["export", "alone.safetensors", "--format", "torchscript", "--out", "alone.safetensors"],
        ["predict", "run", "new.npy", "--csv", "new.npy"],
        ["predict", "alone.safetensors", "new.npy", "--csv", "alone.safetensors"],
    ):
        assert "read by this command" in refused(capsys, *command, "--force")
    assert {path: path.read_bytes() for path in (*run.rglob("*"), *Path().glob("*")) if path.is_file()} == before


def test_evaluate_gives_the_last_rounds_accuracy_again(capsys, run):
    code, out, _ = fedseq(capsys, "evaluate", "run")
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert code == 0
    assert f"accuracy {last['accuracy']:.4f}  loss {last['loss']:.4f}" in out


def test_predict_reads_arrays_and_pictures(capsys, run):
    from PIL import Image
    from sklearn.datasets import load_digits

    x = (load_digits().images[:3] * (255 / 16)).astype(np.uint8)
    np.save("new.npy", x)
    np.savez("new.npz", x=x)
    Image.fromarray(x[0]).save("new.png")
    answers = [fedseq(capsys, "predict", "run", f"new.{kind}")[1] for kind in ("npy", "npz", "png")]
    assert answers[0] == answers[1].replace("npz", "npy")
    assert len(re.findall(r"\| new.npy\[\d\] +\| \d ", answers[0])) == 3
    assert answers[2].splitlines()[2].split("|")[2:] == answers[0].splitlines()[2].split("|")[2:]


def test_partition_draws_a_picture_and_never_over_an_old_one(capsys):
    for name in ("partition.png", "partition-2.png"):
        code, out, _ = fedseq(capsys, "data", "show", "--alpha", "0.5", "--num-clients", "20")
        assert code == 0
        assert f"picture: {name}" in out
        assert Path(name).read_bytes().startswith(b"\x89PNG")
    assert "exists already" in refused(capsys, "data", "show", "--figure", "partition.png")


@pytest.mark.slow
def test_group_compares_criteria_and_reuses_its_pretraining(capsys):
    words = ["group", "--num-clients", "20", "--alpha", "0.2", "--pretrain-epochs", "1", "--engine", "serial"]
    code, out, _ = fedseq(capsys, *words, "--out", "study")
    assert code == 0
    assert "pre-training" in out
    assert json.loads(Path("study/superclients.json").read_text())["metric"] == "kl"
    code, out, _ = fedseq(capsys, *words, "--out", "study", "--all")
    assert code == 0
    assert "| confidence       | -           | exchange |" in out
    assert {path.name for path in Path("study").glob("*.png")} >= {"violins.png", "similarity.png", "components.png"}


def test_group_refuses_what_cannot_be_before_it_pretrains(capsys):
    assert "no superclient can hold" in refused(capsys, "group", "--min-samples", "100000", "--out", "study")
    assert not Path("study").exists()


def test_group_writes_over_nobodys_files(capsys, run):
    """Neither a run's superclients, without which it cannot be resumed, nor tables that happen to be there."""
    before = Path("run/superclients.json").read_bytes()
    words = ["group", "--num-clients", "20", "--grouping", "random"]
    assert "run" in refused(capsys, *words, "--out", "run")
    assert Path("run/superclients.json").read_bytes() == before
    Path("mine").mkdir()
    Path("mine/quality.csv").write_text("mine")
    assert "holds quality.csv, which fedseq group would write over" in refused(capsys, *words, "--out", "mine")
    assert Path("mine/quality.csv").read_text() == "mine"


def test_compare_tells_of_test_sets_that_are_not_the_same(capsys):
    """On one's own data only FedSeq takes exemplars out, one of each class here."""
    x, y = np.random.default_rng(0).random((40, 4), dtype=np.float32), np.arange(40) % 2
    np.savez("mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    common = ["--dataset", "npz:mine.npz", "--num-clients", "4", "--rounds", "1", "--engine", "serial"]
    assert fedseq(capsys, "run", *common, "--algorithm", "fedavg", "--out", "avg")[0] == 0
    code, out, err = fedseq(capsys, "run", *common, "--pretrain-epochs", "1", "--out", "seq")
    assert code == 0
    assert "all 4 clients are in one superclient" in " ".join((out + err).split())
    _, out, _ = fedseq(capsys, "compare", "avg", "seq")
    assert "fedseq took exemplars out of the test set, fedavg did not" in " ".join(out.split())
    _, out, _ = fedseq(capsys, "compare", "avg")
    assert "exemplars" not in out


def test_a_printed_command_can_be_pasted_whatever_the_folder_is_called(capsys):
    _, out, _ = fedseq(capsys, "run", *SHORT, "--out", "my runs/first one")
    assert "fedseq compare 'my runs/first one' OTHER" in out


@pytest.mark.slow
def test_a_sweep_over_data_sets_says_which_table_is_whose(capsys):
    x, y = np.random.default_rng(0).random((40, 4), dtype=np.float32), np.arange(40) % 2
    for name in ("one", "two"):
        np.savez(f"{name}.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    words = ["--algorithm", "fedavg", "--num-clients", "2", "--rounds", "1", "--jobs", "1", "--out", "swept"]
    Path("both.yaml").write_text("dataset: [npz:one.npz, npz:two.npz]\n")  # as a flag, commas may belong to a file
    code, out, err = fedseq(capsys, "sweep", "both.yaml", *words)
    assert code == 0, err
    assert all(re.search(rf"^\W*npz:{name}.npz", out, re.M) for name in ("one", "two"))


@pytest.mark.slow
def test_demo_shows_fedseq_ahead_of_fedavg(capsys):
    """The numbers of the table follow from the run folders that the demo leaves."""
    code, out, _ = fedseq(capsys, "demo", "--out", "demo")
    assert code == 0
    rows = {line.split("|")[1].strip(): line for line in out.splitlines() if line.startswith("|")}
    accuracies = {
        name: [json.loads(line)["accuracy"] for line in Path(f"demo/{name}/metrics.jsonl").read_text().splitlines()]
        for name in ("centralized", "fedavg", "fedseq", "fedseqinter")
    }
    bound = sum(accuracies["centralized"][-3:]) / 3  # the last tenth of 30 epochs
    assert bound >= 0.95
    crossing = {
        name: next((i + 1 for i, accuracy in enumerate(values) if accuracy >= 0.8 * bound), None)
        for name, values in accuracies.items()
    }
    rounds = len(accuracies["fedseq"])
    assert crossing["fedseq"] is not None
    assert rounds >= 3 * crossing["fedseq"]
    assert crossing["fedavg"] is None or crossing["fedseq"] <= crossing["fedavg"] / 3
    assert f" {crossing['fedseq']} " in rows["fedseq"]
    if crossing["fedavg"] is None:
        assert f"> {rounds}" in rows["fedavg"]
    assert Path("demo/curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_commands_help_teaches_with_an_example(capsys, command):
    code, out, _ = fedseq(capsys, command, "--help")
    assert code == 0
    assert f"example:\n  fedseq {command}" in out


def test_version(capsys):
    assert fedseq(capsys, "--version") == (0, f"fedseq {__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["rum"], "Did you mean 'run'"),
        (["run", "--roundz", "3"], "Did you mean '--rounds'"),
        (["run", "--foo"], "unknown option '--foo'. See: fedseq run --help\n"),  # and nothing that is not like it
        (["sweep", "--workers", "2"], "unknown option '--workers'. See: fedseq sweep --help\n"),
        (["sweep", "--ray-address", "a"], "unknown option '--ray-address'. See: fedseq sweep --help\n"),
        (
            ["federation", "init", "fed", "--nodes", "2", "--workers", "2"],
            "'--workers'. See: fedseq federation init --h",
        ),
        (["run", "--algorithm", "fedsek"], "Did you mean 'fedseq'"),
        (["run", "--dataset", "cifar11"], "Did you mean 'cifar10'"),
        (["run", "--model", "lenet"], "Did you mean 'lenet5'"),
        (["run", "nowhere.yaml"], "no config file nowhere.yaml"),
        (["run", "a.yaml", "b.yaml"], "unexpected argument 'b.yaml'"),
        (["run", "--num-clients", "5000"], "between 1 and the 1437 training examples"),
        (["run", "--fraction", "1.5"], "--fraction must be"),
        (["run", "--rounds", "-1"], "--rounds must be"),
        (["run", "--rounds"], "expected one argument"),
        (["run", "--alpha", "-1"], "--alpha must be 0 or more"),
        (
            ["run", "--grouping-metric", "kl", "--approximator", "classifier-all"],
            "Valid metrics: cosine, euclidean, wasserstein",
        ),
        (["run", "--grouping", "kmeans", "--grouping-metric", "cosine"], "Valid metrics: euclidean"),
        (["run", "--min-samples", "100000"], "no superclient can hold"),
        (["run", "--init-weights", "nowhere.safetensors"], "no weights file"),
        (["run", "--dataset", "npz:nowhere.npz"], "nowhere.npz"),
        (["run", "--dataset", "cifar10", "--data-dir", "nowhere"], "--data-dir nowhere is not a folder"),
        (["run", "--dataset", "cifar10"], "fedseq data get cifar10"),
        (["run", "--device", "cuda"], "device 'cuda' cannot be used here"),
        (["run", "--device", "cuda", "--engine", "ray"], "--engine ray does not compute on cuda"),
        (["run", "--device", "cuda", "--workers", "2"], "device 'cuda' cannot be used by worker processes"),
        (["run", "--algorithm", "fedseq+relay", "--momentum", "0.9"], "relay has a momentum of its own"),
        (
            ["run", "--algorithm", "fedseq+relay", "--max-grad-norm", "1"],
            "--max-grad-norm would clip the velocity instead",
        ),
        (["group", "--pretrain-epochs", "null"], "--pretrain-epochs must be 1 or more"),
        (["run", "--device", "mps", "--workers", "2"], "--engine processes does not compute on mps"),
        (["run", "--device", "cuda:x"], "cannot be used here"),
        (["run", "--model", "os:path"], "is not a class"),
        (["run", "--model", ":"], "cannot import"),
        (["run", "--out", ""], "--out is empty"),
        (["run", "--init-weights="], "--init-weights is empty, as if a variable of the shell were not set"),
        (["run", "--preset="], "--preset is empty"),
        (["compare", ""], "an argument is empty"),
        (["run", "--out=--"], "--out has the value '--', which looks like an option"),
        (["run", "--out=~"], "--out begins with ~, which the shell did not replace"),
        (["run", "--out", "d/" * 1500], "--out has 1500 levels of folders"),
        (["run", "--data-dir", "nowhere"], "--data-dir nowhere is not a folder"),  # digits need none
        (["run", "--workers", "1" + "0" * 23], "--workers takes numbers up to 9.2e+18"),
        (["run", "--workers", "1001"], "--workers must be from 1 to 1,000"),
        (["ls", "nowhere"], "no folder nowhere"),
        (["data", "show", "--figure", "a.xyz"], "ends in .png, .pdf, .svg"),
        (["resume", "nowhere"], "no run folder nowhere"),
        (["evaluate", "nowhere"], "no run folder nowhere"),
        (["compare", "nowhere"], "nowhere"),
        (["data", "get"], "required: NAME. See: fedseq data get --help"),
        (["data"], "which action? fedseq data list, get NAME, or show"),
        (["data", "show", "--alpa", "1"], "Did you mean '--alpha'"),
        (["data", "get", "digits"], "nothing has to be downloaded"),
        (["group", "--pretrain-epochs", "0,5"], "--pretrain-epochs must be"),
        (
            ["group", "--all", "--grouping-metric", "kl"],
            "--all tries every criterion, so --grouping-metric would have no effect",
        ),
        (["group", "--grouping", "random", "--pretrain-epochs", "2"], "--grouping random needs no pre-training"),
        (["sweep", "--jobs", "²"], "--jobs must be 1 or more"),
        (["demo", "--rounds", "few"], "--rounds takes a whole number"),
    ],
)
def test_bad_input_is_refused_with_a_hint(capsys, words, hint):
    assert hint in refused(capsys, *words)


@pytest.mark.parametrize(
    ("words", "told", "again"),
    [
        (["run", "--lr", "0.3"], "--lr cannot change", "--lr 0.3"),
        (["--lr", "0.3", "run"], "--lr cannot change", "--lr 0.3"),  # 0.3 is not the folder
        (["run", "--mu=2"], "--mu cannot change", "--mu=2"),
        (["run", "--update-check", "none"], "--update-check cannot change", "--update-check none"),
        (["run", "--rule", "mine.keep=1"], "--rule cannot change", "--rule mine.keep=1"),
    ],
)
def test_what_cannot_change_on_resume_is_told_with_the_command_that_does_it(capsys, words, told, again):
    Path("run").mkdir()
    Path("run/config.yaml").write_text("rounds: 1\n")
    said = refused(capsys, "resume", *words)
    assert told in said
    assert f"fedseq run run/config.yaml {again} --out OTHER\n" in said


def test_a_file_where_a_folder_is_wanted(capsys, tmp_path):
    Path("file").write_text("mine")
    assert "file" in refused(capsys, "run", *SHORT, "--out", "file")
    assert Path("file").read_text() == "mine"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_and_prints_the_command_to_continue(capsys, number):
    process = start("run", "--grouping", "random", "--rounds", "5000", "--out", "cut", "--algorithm", "fedseq+feddyn")
    metrics = Path("cut/metrics.jsonl")
    wait_for(lambda: process.poll() is not None or (metrics.exists() and metrics.stat().st_size >= 2000))
    process.send_signal(number)
    out, _ = process.communicate()
    assert process.returncode == 130, out
    assert "Continue with: fedseq resume cut" in out
    done = len(metrics.read_text().splitlines())
    code, out, _ = fedseq(capsys, "resume", "cut", "--rounds", str(done + 2))
    assert code == 0
    assert f"continuing after round {done}" in out
    assert len(metrics.read_text().splitlines()) == done + 2
