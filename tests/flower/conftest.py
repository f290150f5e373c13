"""One federation of four nodes for all tests that need a real one and can leave it as they found it."""

import shutil
from collections.abc import Iterator

import pytest

from .expected import NODES, OPTIONS
from .federations import Running, running


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("federation") / "fed", NODES, options=OPTIONS) as made:
        shutil.copytree(made.folder / "app", made.folder / "app-as-written")
        yield made


@pytest.fixture
def fed(deployed: Running) -> Iterator[Running]:
    """With TLS and keys, all nodes online, and the app that `init` writes."""
    deployed.all_online()
    yield deployed
    shutil.copytree(deployed.folder / "app-as-written", deployed.folder / "app", dirs_exist_ok=True)
