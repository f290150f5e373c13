"""What `import fedseq` offers: seen by people, by editors and by type checkers."""

import subprocess
import sys
from pathlib import Path
from typing import Any, assert_type

import fedseq
from fedseq import Algorithm, Config, Run


def test_dir_shows_the_api_and_nothing_else() -> None:
    assert dir(fedseq) == sorted(fedseq.__all__)


def test_every_name_is_there_and_has_one_home() -> None:
    assert set(fedseq.__all__) == {*fedseq._HOMES, "FedSeqError", "__version__"}
    for name in fedseq.__all__:
        assert getattr(fedseq, name) is not None


def test_listing_the_api_loads_nothing_heavy() -> None:
    code = "import sys, fedseq; dir(fedseq); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def typed(folder: Path, options: dict[str, Any]) -> None:
    """Never called: `make check` finds here any name of the API that a type checker takes to be anything at all."""
    assert_type(fedseq.run(dataset="digits"), Run)
    assert_type(fedseq.resume(folder), Run)
    assert_type(fedseq.read_run(folder).config, Config)
    assert_type(fedseq.federate(**options), Run)
    assert_type(fedseq.algorithms.fedseq(fedseq.algorithms.fedprox(mu=0.1)), Algorithm)
    assert_type(fedseq.load_model(folder).training, bool)
    assert_type(fedseq.Setting(1, 1, 1, 1).num_clients, int)
    fedseq.no_such_name  # type: ignore[attr-defined]  # noqa: B018 - and a misspelt name is found
