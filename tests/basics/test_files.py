"""Files are written whole or not at all, and under no name that somebody else could have prepared."""

import os
from pathlib import Path

from fedseq.basics.files import remove_leftovers, write_atomically


def test_what_others_put_into_a_shared_folder_does_not_become_our_file(tmp_path: Path) -> None:
    theirs = tmp_path / f".report.html.{os.getpid()}.fedseq-unfinished"
    theirs.write_bytes(b"theirs")
    theirs.chmod(0o666)
    write_atomically(tmp_path / "report.html", b"ours")
    assert theirs.read_bytes() == b"theirs"
    assert (tmp_path / "report.html").stat().st_mode & 0o002 == 0  # it can be written by nobody else
    write_atomically(tmp_path / "report.html", b"again")
    assert (tmp_path / "report.html").read_bytes() == b"again"
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([theirs.name, "report.html"])


def test_what_a_killed_process_left_is_removed(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "model").write_bytes(b"old")
    if (killed := os.fork()) == 0:
        monkeypatch.setattr(os, "fsync", lambda _: os._exit(9))  # in the middle of writing
        write_atomically(tmp_path / "model", b"new")
    assert os.waitstatus_to_exitcode(os.waitpid(killed, 0)[1]) == 9
    assert len(list(tmp_path.iterdir())) == 2
    remove_leftovers(tmp_path)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("model", b"old")]
