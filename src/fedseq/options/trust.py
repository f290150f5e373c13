"""A file of options may name code: a model or a rule of somebody's own, or a Ray cluster, whose answers are code too.

Whoever wrote the file would decide what is run here. So such a name counts only if the user gives it now, on the
command line or in Python, or says that the file is to be trusted.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from fedseq.basics.errors import FedSeqError
from fedseq.options.option import flag


def names_code(options: Mapping[str, Any]) -> list[str]:
    """Those that name code, by the names of the options."""
    own = [name for name in ("model", "algorithm") if ":" in str(options.get(name, ""))]
    return own + (["ray_address"] if options.get("ray_address") is not None else [])


def refuse_code(options: Mapping[str, Any], where: str | Path, given: Collection[str], trust: bool) -> None:
    """Refuse options out of a file that name code, unless the user gave them now, or trusts the file."""
    named = [name for name in names_code(options) if name not in given]
    if named and not trust:
        asked = " ".join(f"{flag(name)} {options[name]}"[:200] for name in named)
        raise FedSeqError(
            f"{where} asks for code that is not part of fedseq: {asked}. Nothing of it was run. If it is yours, or you "
            "trust who wrote it, add --trust to the command (in Python: trust=True)."
        )
