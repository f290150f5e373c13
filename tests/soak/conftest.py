"""The soak is run by `make soak`; every piece tells what it did, how often, and what came of it.

What is marked as slow is run by `make test-all` too, a few times.
"""

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from .harness import SEED, SOAK


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "soak" in item.path.parts and not SOAK and not item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="long: make soak"))


@pytest.fixture
def dice(request: pytest.FixtureRequest) -> random.Random:
    return random.Random(f"{SEED} {request.node.name}")


@pytest.fixture
def counts(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Iterator["Counter[str]"]:
    """What came out, and how often; printed at the end of the piece, also of one that failed."""
    found: Counter[str] = Counter()
    yield found
    told = ", ".join(f"{number} {what}" for what, number in found.most_common())
    with capsys.disabled():
        print(f"\n{request.node.name}, seed {SEED}: {told or 'nothing'}")  # noqa: T201
