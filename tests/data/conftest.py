from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has a cache of its own, and no data folder that somebody set outside."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("FEDSEQ_CACHE", str(folder))
    monkeypatch.delenv("FEDSEQ_DATA", raising=False)
    return folder
