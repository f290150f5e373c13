"""Code of the user's own, a model or a rule, by its name. Whether a name out of a file counts, trust.py decides."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedseq.basics.errors import FedSeqError, unknown


def load_own(kind: str, name: str) -> Callable[..., Any]:
    """A user's own, by `package.module:name`."""
    module_name, _, attribute = name.partition(":")
    if str(Path.cwd()) not in sys.path:  # a console script does not look in the current folder, where users keep theirs
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise FedSeqError(f"{kind} '{name}': cannot import {module_name}: {error}.") from None
    if not hasattr(module, attribute):
        public = (word for word in vars(module) if not word.startswith("_"))
        raise unknown(f"{kind} in {module_name}:", attribute, public)
    own: Callable[..., Any] | None = getattr(module, attribute)
    if not callable(own):
        raise FedSeqError(f"{kind} '{name}': {attribute} is not a class or function.")
    return own
