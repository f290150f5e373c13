"""FedSeq: federated learning with sequentially trained superclients.

    import fedseq
    run = fedseq.run(dataset="digits", algorithm="fedseq", rounds=30)
    print(run.final_accuracy())

Names are loaded when they are first used, so that `import fedseq` and the command line's help stay fast.
"""

import importlib
from typing import Any

from fedseq.errors import FedSeqError
from fedseq.version import VERSION

__version__ = VERSION

_HOMES = {
    "Algorithm": "algorithms", "Hop": "algorithms", "Setting": "algorithms", "algorithms": "",
    "Config": "config",
    "federate": "own", "federate_indexed": "own", "resume": "experiment", "run": "experiment",
    "load_model": "trained",
    "Run": "results", "read_run": "results",
}  # fmt: skip

__all__ = ["FedSeqError", "__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedseq' has no attribute '{name}'")
    home = _HOMES[name]
    module = importlib.import_module(f"fedseq.{home or name}")
    return getattr(module, name) if home else module
