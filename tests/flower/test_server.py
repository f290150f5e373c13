"""What a server keeps of its clients between two starts."""

import pytest

from fedseq.basics.errors import FedSeqError
from fedseq.flower.server_app import IDENTITY, _identity

DAMAGED = ["", "{", '{"run": "ab"', "[]", '{"run": "ab", "examples": ["many"]}']


@pytest.mark.parametrize("text", DAMAGED)
def test_a_half_written_file_of_a_run_that_never_began_is_made_anew(tmp_path, text):
    (tmp_path / IDENTITY).write_text(text)
    (tmp_path / "checkpoints").mkdir()
    assert _identity(tmp_path) == _identity(tmp_path / "nowhere") == {}


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_file_of_a_run_with_checkpoints_is_an_error_that_says_what_to_do(tmp_path, text):
    (tmp_path / IDENTITY).write_text(text)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "000001.json").write_text("{}")
    with pytest.raises(FedSeqError, match=r"server\.json is damaged .* Restore it"):
        _identity(tmp_path)
