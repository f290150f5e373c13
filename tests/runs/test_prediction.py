"""A trained model is used where its data is not: from a run folder, from its weights alone, in other programs."""

import hashlib
import io
import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

import fedseq
from fedseq import FedSeqError
from fedseq.cli import main
from fedseq.using.export import export_run
from fedseq.using.predict import evaluate_run, load_trained, predict_run

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
CLASSES = ("cat", "dog", "owl")


def pictures(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 6, 6, 3), dtype=np.uint8)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Of a folder of pictures, which is gone then."""
    for split, seed in (("train", 0), ("test", 1)):
        for number, pixels in enumerate(pictures(12, seed)):
            place = tmp_path / "photos" / split / CLASSES[number % 3]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(place / f"{number}.png")
    fedseq.run(
        dataset="folder:photos", algorithm="fedavg", num_clients=2, alpha="inf", rounds=1, engine="serial",
        folder="run",
    )  # fmt: skip
    shutil.rmtree("photos")
    return Path("run")


def by_hand(run: Path, pixels: np.ndarray) -> Tensor:
    """Logits of [n, 6, 6, 3] pixels: scaled to -1..1, through the named network with the saved tensors."""
    from fedseq.models.networks import SmallCNN

    network = SmallCNN((3, 6, 6), 3)
    network.load_state_dict(fedseq.read_run(run).weights())
    with torch.no_grad():
        return network(torch.from_numpy(pixels / 127.5 - 1).float().permute(0, 3, 1, 2))


def test_files_folders_and_arrays_are_classified_without_the_training_data(run: Path) -> None:
    new = pictures(4, seed=2)
    expected = by_hand(run, new).softmax(1)
    Path("new/deeper").mkdir(parents=True)
    for number in range(4):
        Image.fromarray(new[number]).save(f"new/{'deeper/' * (number > 1)}{number}.png")
    np.savez("new.npz", anything=new)
    np.save("first.npy", new[0].astype(np.float64))
    np.save("rows.npy", new.transpose(0, 3, 1, 2))
    for where in (run, run / "weights.safetensors"):
        for files, chosen in (
            (["new"], [0, 1, 2, 3]), (["new.npz"], [0, 1, 2, 3]), (["rows.npy"], [0, 1, 2, 3]),
            (["first.npy", "new/1.png"], [0, 1]),
        ):  # fmt: skip
            found = predict_run(where, *files)
            assert [row.class_name for row in found] == [CLASSES[c] for c in expected[chosen].argmax(1)]
            np.testing.assert_allclose([row.probability for row in found], expected[chosen].amax(1), atol=1e-5)
    assert [row.input for row in predict_run(run, "new")] == [
        "new/0.png", "new/1.png", "new/deeper/2.png", "new/deeper/3.png",
    ]  # fmt: skip


def test_a_picture_of_another_size_is_resized_and_it_is_said(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One colour stays one colour, whatever the size."""
    Image.new("RGB", (6, 6), (9, 80, 200)).save("small.png")
    Image.new("RGBA", (90, 30), (9, 80, 200, 255)).save("large.png")
    small, large = predict_run(run, "small.png", "large.png")
    assert small[1:] == large[1:]
    assert main(["predict", "run", "large.png", "--csv", "found.csv"]) == 0
    assert "resized to 6x6, which the model takes: 1 of 1 in large.png (large.png has 90x30)" in capsys.readouterr().out
    written = Path("found.csv").read_text()
    assert written.splitlines()[1].startswith(f"large.png,{small.class_name},0.")
    Path("found.csv").write_text("mine")
    assert main(["predict", "run", "large.png", "--csv", "found.csv"]) == 2
    assert "found.csv exists already" in capsys.readouterr().err
    assert Path("found.csv").read_text() == "mine"
    assert main(["predict", "run", "large.png", "--csv", "found.csv", "--force"]) == 0
    assert Path("found.csv").read_text() == written
    assert main(["predict", "run", "large.png", "--csv", "run", "--force"]) == 2
    assert "run is not a plain file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((2, 7, 6, 3), np.uint8), "shape [2, 7, 6, 3]; the model takes [n, 3, 6, 6]"),
        (np.full((2, 6, 6, 3), 0.5), "float64 values from 0.5 to 0.5; the model takes pixels, whole numbers from 0 to"),
        (np.full((2, 6, 6, 3), 300), "int64 values from 300 to 300"),
        (np.full((2, 6, 6, 3), np.nan), "not finite"),
        (np.full((2, 6, 6, 3), "x"), "does not hold numbers"),
    ],
)
def test_inputs_that_cannot_be_meant_are_refused(run: Path, array: np.ndarray, words: str) -> None:
    np.save("new.npy", array)
    with pytest.raises(FedSeqError) as error:
        predict_run(run, "new.npy")
    assert words in str(error.value)


def test_other_labelled_examples_can_be_evaluated_on(run: Path) -> None:
    new, labels = pictures(20, seed=3), np.arange(20) % 3
    np.savez("more.npz", x=new, y=labels)
    right = (by_hand(run, new).argmax(1).numpy() == labels).mean()
    for where in (run, run / "weights.safetensors"):
        assert evaluate_run(where, data="npz:more.npz")[0].accuracy == pytest.approx(right)
    with pytest.raises(FedSeqError, match="name labelled examples"):
        evaluate_run(run / "weights.safetensors")


def visits(rows: int = 60) -> list[str]:
    """Lines of a table with a number and a class that follows from it, in an order that nothing follows from."""
    return [
        f"{number},{'ill' if number > rows / 2 else 'well'}" for number in np.random.default_rng(0).permutation(rows)
    ]


def write_table(lines: list[str]) -> None:
    Path("visits.csv").write_text("\n".join(["age,label", *lines]) + "\n")


@pytest.mark.parametrize("attack", [None, "label-flip", "late-label-flip:1"])
def test_a_run_is_evaluated_on_the_data_that_it_began_with_or_not_at_all(attack: str | None) -> None:
    """Of other rows, or the same in another order, others are held out: the run may have been trained on them."""
    lines = visits()
    write_table(lines)
    attacked: dict[str, Any] = {"attack": attack, "attacker_fraction": 0.5} if attack else {}
    fedseq.run(
        dataset="csv:visits.csv", holdout=0.3, algorithm="fedavg", num_clients=2, alpha="inf", rounds=1,
        engine="serial", folder="run", **attacked,
    )  # fmt: skip
    accuracy = fedseq.read_run(Path("run")).metrics[-1]["accuracy"]
    for other in (lines[::-1], lines[:30], [*lines[:-1], "7,ill"]):
        write_table(other)
        with pytest.raises(FedSeqError, match="run was run on other data than what is loaded now"):
            evaluate_run("run")
    write_table(lines)
    assert evaluate_run("run")[0].accuracy == accuracy
    shutil.rmtree("run/checkpoints")  # clients.json says it too
    assert evaluate_run("run")[0].accuracy == accuracy
    write_table(lines[::-1])
    with pytest.raises(FedSeqError, match="run was run on other data"):
        evaluate_run("run")
    Path("run/clients.json").unlink()
    with pytest.raises(FedSeqError, match=r"clients\.json is gone"):
        evaluate_run("run")


def test_weights_that_do_not_say_what_they_are_of_take_it_from_the_runs_own_data() -> None:
    """Files of earlier versions: scaled by another table's mean, every prediction would be another."""
    write_table(visits())
    fedseq.run(
        dataset="csv:visits.csv", holdout=0.3, algorithm="fedavg", num_clients=2, alpha="inf", rounds=1,
        engine="serial", folder="run",
    )  # fmt: skip
    np.save("new.npy", np.array([[3], [50]], np.float32))
    expected = predict_run("run", "new.npy")
    tensors = fedseq.read_run("run").weights()
    save_file(tensors, "run/weights.safetensors")
    sums = Path("run/SHA256SUMS")
    digest = hashlib.sha256(Path("run/weights.safetensors").read_bytes()).hexdigest()
    lines = [f"{digest}  {name}" if name == "weights.safetensors" else line
             for line in sums.read_text().splitlines() for name in [line.split()[1]]]  # fmt: skip
    sums.write_text("\n".join(lines) + "\n")
    assert predict_run("run", "new.npy") == expected
    write_table(visits(80))
    with pytest.raises(FedSeqError, match="run was run on other data"):
        predict_run("run", "new.npy")


def test_features_of_a_table_are_given_as_they_are_in_it() -> None:
    """Scaled by what model.json says, also in an exported file."""
    dice = np.random.default_rng(0)
    rows = np.column_stack([dice.normal(1000, 50, 60), dice.normal(0.001, 0.0002, 60)])
    lines = [f"{a:.3f},{b:.6f},{'ill' if a > 1000 else 'well'}" for a, b in rows]
    Path("visits.csv").write_text("\n".join(["pressure,dose,state", *lines]) + "\n")
    fedseq.run(
        dataset="csv:visits.csv", label_column="state", holdout=0.3, algorithm="fedavg", num_clients=2, alpha="inf",
        rounds=2, engine="serial", folder="run",
    )  # fmt: skip
    told = json.loads(Path("run/model.json").read_text())
    assert told["centre"][0] == pytest.approx(1000, abs=30)
    new = np.array([[1100, 0.0012], [900, 0.001]], np.float32)
    module = fedseq.load_model("run")
    with torch.no_grad():
        expected = module(torch.from_numpy((new - told["centre"]) / told["spread"]).float())
    np.save("new.npy", new)
    found = predict_run("run", "new.npy")
    np.testing.assert_allclose([row.probability for row in found], expected.softmax(1).amax(1), atol=1e-5)
    assert evaluate_run("run")[0].accuracy == fedseq.read_run(Path("run")).metrics[-1]["accuracy"]
    export_run("run", "torchscript")
    np.testing.assert_allclose(run_torchscript(Path("run/model.pt"), new), expected, atol=1e-4)


def test_unix_times_are_learnt_predicted_and_exported_exactly() -> None:
    """Large beside their spread: 1700000000 and 1700000100 differ, though not among numbers of single precision."""
    seconds = 1_700_000_000 + np.arange(60) * 100
    lines = [f"{second},{'late' if second > seconds[30] else 'early'}" for second in seconds]
    Path("log.csv").write_text("\n".join(["second,state", *lines]) + "\n")
    fedseq.run(
        dataset="csv:log.csv", label_column="state", holdout=0.3, algorithm="fedavg", num_clients=2, alpha="inf",
        rounds=20, engine="serial", folder="run",
    )  # fmt: skip
    assert fedseq.read_run("run").metrics[-1]["accuracy"] > 0.8
    export_run("run", "torchscript")
    pytest.importorskip("onnx")
    export_run("run", "onnx")
    told = json.loads(Path("run/model.json").read_text())
    new = seconds[28:33, None].astype(np.float64)
    with torch.no_grad():
        scaled = (new - told["centre"]) / told["spread"]
        expected = fedseq.load_model("run")(torch.from_numpy(scaled).float())
    assert len(np.unique(expected[:, 0])) == len(new)
    np.testing.assert_allclose(run_torchscript(Path("run/model.pt"), new), expected, atol=1e-5)
    np.testing.assert_allclose(run_onnx(Path("run/model.onnx"), new), expected, atol=1e-5)
    classes = np.array(told["class_names"])[expected.argmax(1)]
    np.savez("new.npz", x=new, y=np.array([told["class_names"].index(name) for name in classes]))
    assert [row.class_name for row in predict_run("run", "new.npz")] == classes.tolist()
    np.save("whole.npy", seconds[28:33, None])
    assert [row[1:] for row in predict_run("run", "whole.npy")] == [row[1:] for row in predict_run("run", "new.npz")]
    assert evaluate_run("run", data="npz:new.npz")[0].accuracy == 1


def test_a_pipe_is_no_input(run: Path) -> None:
    os.mkfifo("pipe")  # opening it would wait for somebody who writes
    with pytest.raises(FedSeqError, match="pipe is not a plain file"):
        predict_run(run, "pipe")


class Net(nn.Module):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.norm, self.layer = nn.BatchNorm1d(4), nn.Linear(4, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.norm(x))


@pytest.fixture
def own() -> Path:
    x = torch.randn(3, 20, 4, generator=torch.Generator().manual_seed(0))
    clients = [(part, torch.arange(20) % 2) for part in x]
    fedseq.federate(Net, clients, clients[0], "fedavg", rounds=1, engine="serial", folder="own")
    np.savez("same.npz", x=x[0].numpy(), y=np.arange(20) % 2)
    return Path("own")


def test_a_model_given_in_python_is_given_again(own: Path) -> None:
    for use in (fedseq.load_model, lambda folder: predict_run(folder, "same.npz")):
        with pytest.raises(FedSeqError, match=r"a model that has no name.*load_model\(folder, model="):
            use(own)
    module = fedseq.load_model(own, model=Net)
    assert all(torch.equal(module.state_dict()[name], value) for name, value in fedseq.read_run(own).weights().items())
    accuracy = fedseq.read_run(own).metrics[-1]["accuracy"]
    assert evaluate_run(own, data="npz:same.npz", model=Net)[0].accuracy == accuracy
    with pytest.raises(FedSeqError, match="on data that is not kept"):
        evaluate_run(own, model=Net)


def run_onnx(file: Path, x: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(file)
    told = json.loads(session.get_modelmeta().custom_metadata_map["fedseq"])
    assert told == load_trained(file.parent, model=Net if told["model"] == "own" else None).card.describe() | {
        name: list(told[name]) for name in ("shape", "class_names", "mean", "std")
    }
    return session.run(None, {"x": x})[0]


def run_torchscript(file: Path, x: np.ndarray) -> np.ndarray:
    return torch.jit.load(file)(torch.from_numpy(x)).detach().numpy()


@pytest.mark.parametrize(("form", "name", "use"), [
    ("onnx", "model.onnx", run_onnx), ("torchscript", "model.pt", run_torchscript),
])  # fmt: skip
def test_an_exported_model_gives_the_same_outputs_in_another_program(run, own, form, name, use) -> None:
    """Of any number of inputs, scaled by the file itself; written by whoever has the weights alone, too."""
    if form == "onnx":
        pytest.importorskip("onnx")
    pixels = pictures(7, seed=4)
    assert main(["export", "run", "--format", form]) == 0
    np.testing.assert_allclose(use(run / name, pixels.transpose(0, 3, 1, 2)), by_hand(run, pixels), atol=1e-5)
    assert main(["export", "run", "--format", form]) == 2  # nothing is overwritten
    assert main(["export", "run/weights.safetensors", "--format", form, "--force"]) == 0
    features = np.random.default_rng(5).normal(size=(3, 4)).astype(np.float32)
    export_run(own, form, model=Net)
    with torch.no_grad():
        expected = fedseq.load_model(own, model=Net)(torch.from_numpy(features))
    np.testing.assert_allclose(use(own / name, features), expected, atol=1e-5)


class Moody(Net):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (1 if len(x) == 2 else 3)


def test_an_export_that_would_give_other_outputs_is_not_written(own: Path) -> None:
    with pytest.raises(FedSeqError, match="gives other outputs"):
        export_run(own, "torchscript", model=Moody)
    assert not (own / "model.pt").exists()


def with_metadata(file: Path, **changes: object) -> None:
    """The same tensors under another description."""
    content = file.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"] = {"fedseq": json.dumps(json.loads(header["__metadata__"]["fedseq"]) | changes)}
    written = json.dumps(header).encode()
    made = io.BytesIO()
    made.write(struct.pack("<Q", len(written)) + written + content[8 + length :])
    file.write_bytes(made.getvalue())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "os:system"}, "asks for code that is not part of fedseq"),
        ({"model": "lenet6"}, "unknown model"),
        ({"shape": [3, 16384, 4096]}, "does not fit this model"),  # a network of gigabytes is not even built
        ({"shape": [10**9, 10**9]}, "is damaged"),
        ({"shape": []}, "is damaged"),
        ({"class_names": ["\x1b[2J", "b", "c"]}, "is damaged"),
        ({"std": [0, 1, 1]}, "is damaged"),
        ({"mean": "abc"}, "is damaged"),
    ],
)
def test_what_a_file_says_of_itself_is_not_believed(run: Path, changes: dict[str, object], words: str) -> None:
    shutil.copy(run / "weights.safetensors", "theirs.safetensors")
    with_metadata(Path("theirs.safetensors"), **changes)
    with pytest.raises(FedSeqError, match=words):
        fedseq.load_model("theirs.safetensors")
