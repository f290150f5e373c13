"""With which software a run was made."""

import platform
import subprocess
from pathlib import Path
from typing import Any

from fedseq import __version__


def environment() -> dict[str, Any]:
    import numpy
    import torch

    return {
        "fedseq": __version__,
        "git_revision": _git_revision(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "platform": platform.platform(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }


def _git_revision() -> str | None:
    """Of the source tree this package is run from; None for an installed copy."""
    source = Path(__file__).resolve().parents[3]
    if not (source / ".git").exists():
        return None
    try:
        asked = subprocess.run(
            ["git", "-C", str(source), "describe", "--always", "--dirty", "--abbrev=40"],
            capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.strip()
