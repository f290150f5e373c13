"""A trained model as a file that other programs run: ONNX, or TorchScript.

The file takes inputs as they are stored (pictures as uint8 pixels from 0 to 255) and scales them itself, so that
nobody can scale them wrongly. It says what the model is in its own metadata, as weights.safetensors does.
"""

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from fedseq.basics.errors import FedSeqError, in_short
from fedseq.basics.files import write_atomically
from fedseq.data.untrusted import optional
from fedseq.runs.folder import refuse_to_write
from fedseq.runs.model_card import KEY, ModelCard
from fedseq.training.sgd import one_thread
from fedseq.using.predict import OwnModel, load_trained

OPSET = 17  # of ONNX: read by everything since 2022
TOLERANCE = 1e-4  # of an output, relative to the largest one


class OfPixels(nn.Module):
    """A model behind the scaling of its pictures."""

    factor: Tensor
    shift: Tensor

    def __init__(self, module: nn.Module, card: ModelCard):
        super().__init__()
        self.module = module
        centre, spread = (
            255 * torch.tensor(part, dtype=torch.float64).view(-1, 1, 1) for part in (card.mean, card.std)
        )
        self.register_buffer("factor", (1 / spread).float())
        self.register_buffer("shift", (-centre / spread).float())

    def forward(self, x: Tensor) -> Tensor:
        return self.module(torch.addcmul(self.shift, x.float(), self.factor))


class OfFeatures(nn.Module):
    """A model behind the scaling of its features, in double precision: a year or a price is large beside its spread."""

    centre: Tensor
    spread: Tensor

    def __init__(self, module: nn.Module, card: ModelCard):
        super().__init__()
        self.module = module
        self.register_buffer("centre", torch.tensor(card.centre, dtype=torch.float64))
        self.register_buffer("spread", torch.tensor(card.spread, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.module(((x.double() - self.centre) / self.spread).float())


@dataclass(frozen=True)
class Exported:
    file: Path
    largest_difference: float  # of an output, between the file's and the model's


def export_run(
    where: str | Path,
    form: str,
    out: str | Path | None = None,
    *,
    best: bool = False,
    overwrite: bool = False,
    model: OwnModel | None = None,
    trust: bool = False,
) -> Exported:
    """Write the file, read it back and compare its outputs with the model's."""
    if form not in FORMATS:
        raise FedSeqError(f"unknown format '{form}'. Valid: {', '.join(FORMATS)}.")
    suffix, write, run = FORMATS[form]
    place = Path(where) if Path(where).is_dir() else Path(where).parent
    file = Path(out) if out else place / f"model{'-best' if best else ''}{suffix}"
    refuse_to_write(file, "--out", overwrite, () if Path(where).is_dir() else (Path(where),))
    trained = load_trained(where, best=best, model=model, trust=trust)
    module = trained.factory()
    module.load_state_dict(trained.model.module.state_dict())
    card, plain = trained.card, module.eval()
    module = (OfPixels(plain, card) if card.mean else OfFeatures(plain, card) if card.spread else plain).eval()
    with one_thread(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tracers warn of themselves
        examples = _examples(card)
        expected = (plain(torch.from_numpy(card.scaled(examples.numpy()))) if card.spread else module(examples)).numpy()
        try:
            content = write(module, examples[:2], card)
        except FedSeqError:
            raise
        except Exception as error:  # whatever a tracer makes of a user's model
            raise FedSeqError(f"the model cannot be written as {form}: {in_short(error)}") from error
        found = run(content, examples)
    difference = float(np.abs(found - expected).max())
    if found.shape != expected.shape or not difference <= TOLERANCE * max(1.0, float(np.abs(expected).max())):
        raise FedSeqError(
            f"the model as {form} gives other outputs: they differ by up to {difference:.2g}. Nothing was written. "
            "Does it decide by the values of its inputs, or the size of a batch?"
        )
    write_atomically(file, content)
    return Exported(file, difference)


def _examples(card: ModelCard) -> Tensor:
    """Five random inputs such as it may get, of which two are traced: a file that takes only one size is noticed."""
    dice = np.random.default_rng(0)
    drawn = {
        "uint8": lambda: dice.integers(0, 256, (5, *card.shape), dtype=np.uint8),
        "float32": lambda: _unscaled(card, dice.normal(size=(5, *card.shape))).astype(np.float32),
        "float64": lambda: _unscaled(card, dice.normal(size=(5, *card.shape))),
        "int64": lambda: np.zeros((5, *card.shape), dtype=np.int64),  # of what range they are, nobody knows
    }
    return torch.from_numpy(drawn[card.dtype]())


def _unscaled(card: ModelCard, x: np.ndarray) -> np.ndarray:
    return x * np.array(card.spread) + np.array(card.centre) if card.spread else x


def _write_onnx(module: nn.Module, x: Tensor, card: ModelCard) -> bytes:
    onnx = optional("onnx", extra="export")
    written = io.BytesIO()
    torch.onnx.export(
        module, (x,), cast(Any, written), dynamo=False, opset_version=OPSET, input_names=["x"], output_names=["logits"],
        dynamic_axes={"x": {0: "n"}, "logits": {0: "n"}},
    )  # fmt: skip
    model = onnx.load_from_string(written.getvalue())
    onnx.helper.set_model_props(model, card.metadata())
    onnx.checker.check_model(model)
    return model.SerializeToString()


def _run_onnx(content: bytes, x: Tensor) -> np.ndarray:
    session = optional("onnxruntime", extra="export").InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x.numpy()})[0]


def _write_torchscript(module: nn.Module, x: Tensor, card: ModelCard) -> bytes:
    written = io.BytesIO()
    torch.jit.save(torch.jit.trace(module, x, check_trace=False), written, {KEY: card.metadata()[KEY]})
    return written.getvalue()


def _run_torchscript(content: bytes, x: Tensor) -> np.ndarray:
    return torch.jit.load(io.BytesIO(content))(x).numpy()


Write = Callable[[nn.Module, Tensor, ModelCard], bytes]
Run = Callable[[bytes, Tensor], np.ndarray]
FORMATS: dict[str, tuple[str, Write, Run]] = {
    "onnx": (".onnx", _write_onnx, _run_onnx),
    "torchscript": (".pt", _write_torchscript, _run_torchscript),
}
