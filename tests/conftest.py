"""Every test works in a folder of its own and leaves the user's cache alone."""

import pytest


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSEQ_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDSEQ_DATA", raising=False)
