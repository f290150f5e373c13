from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, own_folder: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache in which nothing is yet."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("FEDSEQ_CACHE", str(folder))
    return folder
