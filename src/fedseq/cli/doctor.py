"""Show versions, kernels, CPU, GPU, cache and disk of this machine."""

import importlib.metadata
import os
import platform
import shutil
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from fedseq import __version__
from fedseq.basics.processes import usable_cores
from fedseq.cli.console import make_console

EXAMPLE = "fedseq doctor"
NAMES = 19  # columns for the name of what was found
NEEDED = ("torch", "numpy", "scipy", "scikit-learn", "safetensors", "matplotlib")
EXTRAS = {
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "mlflow-skinny": "mlflow",
    "ray": "ray",
    "flwr": "flower",
    "pyarrow": "data",
    "pillow": "data",
    "onnx": "export",
    "onnxruntime": "export",
}


def add_arguments(parser: ArgumentParser) -> None:
    pass


def main(arguments: Namespace) -> None:
    console = make_console()
    for what, found in [*_versions(), *_processor(), *_accelerator(), *_places()]:
        lines = textwrap.wrap(
            f"{what:<{NAMES}}{found}", console.width, subsequent_indent=" " * NAMES, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
        console.print("\n".join(lines), markup=False, soft_wrap=True)


def _versions() -> Iterator[list[str]]:
    yield ["fedseq", f"{__version__}, in {Path(__file__).parents[1]}"]
    yield ["Python", f"{platform.python_version()}, {platform.system()} {platform.machine()}"]
    yield ["packages", ", ".join(f"{name} {_version(name) or 'MISSING'}" for name in NEEDED)]
    extras = {name: _version(name) for name in EXTRAS}
    yield ["extras", ", ".join(f"{name} {version}" for name, version in extras.items() if version) or "none"]
    missing = ", ".join(sorted({EXTRAS[name] for name, version in extras.items() if not version}))
    if missing:
        yield ["not installed", f"{missing}: pip install '.[{missing.replace(', ', ',')}]'"]


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> Iterator[list[str]]:
    import torch

    from fedseq.models import kernels
    from fedseq.options.resolve import resolve

    capability, engine = torch.backends.cpu.get_cpu_capability(), resolve({}).engine
    memory = ""
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = f"; {_gigabytes(os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE'))} of memory"
    yield ["cores", f"{usable_cores()} of {os.cpu_count()}, {capability}; default engine: {engine}{memory}"]
    yield ["passes in C", "compiled and checked" if kernels.load() else "cannot be used; PyTorch gives the same bits"]
    reason = kernels.available()
    yield ["fast convolutions", "compiled and checked" if reason is None else f"cannot be used: {reason}"]


def _accelerator() -> Iterator[list[str]]:
    import torch

    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            facts = torch.cuda.get_device_properties(number)
            yield [f"GPU {number}", f"{facts.name}, {_gigabytes(facts.total_memory)}: --device cuda:{number}"]
    elif torch.backends.mps.is_available():
        yield ["GPU", "Apple: --device mps"]
    else:
        built = (
            f"PyTorch is built for CUDA {torch.version.cuda}" if torch.version.cuda else "PyTorch is built without CUDA"
        )
        yield ["GPU", f"none seen; {built}"]


def _places() -> Iterator[list[str]]:
    from fedseq.basics.files import cache_dir

    cache = cache_dir()
    size = sum(path.stat().st_size for path in cache.rglob("*") if path.is_file()) if cache.exists() else 0
    yield ["cache", f"{cache}, {_gigabytes(size)}"]
    for name, place in (("disk of the cache", cache), ("disk here", Path.cwd())):
        there = next(path for path in (place, *place.parents) if path.exists())
        writable = "" if os.access(there, os.W_OK) else ", NOT WRITABLE"
        yield [name, f"{_gigabytes(shutil.disk_usage(there).free)} free{writable}"]


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
