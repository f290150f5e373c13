"""FedSeq: federated learning with sequentially trained superclients.

    import fedseq
    run = fedseq.run(dataset="digits", algorithm="fedseq", rounds=30)
    print(run.final_accuracy())

Names are loaded when they are first used, so that `import fedseq` and the command line's help stay fast.
"""

import importlib

from fedseq.basics.errors import FedSeqError

TYPE_CHECKING = False  # importing `typing` takes longer than all else here
if TYPE_CHECKING:  # what editors and type checkers see; `_HOMES` says the same to Python
    from fedseq import algorithms
    from fedseq.algorithms import Algorithm, Hop, Setting
    from fedseq.api.experiment import resume, run
    from fedseq.api.federate import federate
    from fedseq.options.config import Config
    from fedseq.runs.reading import Run, read_run
    from fedseq.using.predict import load_model

__version__ = "0.1.0"

__all__ = [
    "Algorithm", "Config", "FedSeqError", "Hop", "Run", "Setting", "__version__", "algorithms", "federate",
    "load_model", "read_run", "resume", "run",
]  # fmt: skip

_HOMES = {
    "Algorithm": "algorithms", "Hop": "algorithms", "Setting": "algorithms", "algorithms": "",
    "Config": "options.config",
    "federate": "api.federate",
    "resume": "api.experiment", "run": "api.experiment",
    "load_model": "using.predict",
    "Run": "runs.reading", "read_run": "runs.reading",
}  # fmt: skip


if not TYPE_CHECKING:  # so that a type checker finds a misspelt name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'fedseq' has no attribute '{name}'")
        home = _HOMES[name]
        module = importlib.import_module(f"fedseq.{home or name}")
        return getattr(module, name) if home else module


def __dir__() -> list[str]:
    return __all__
