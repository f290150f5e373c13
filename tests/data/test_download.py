"""Against a real server on this machine, which counts the bytes it sends."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fedseq.basics.errors import FedSeqError
from fedseq.data import load_dataset
from fedseq.data.download import download, get_dataset
from fedseq.options.datasets import Download

from .builders import assert_same, cifar_batches, expect_archive, small_cifar, write_archive

BLOB = bytes(range(256)) * 4000  # about a megabyte: several chunks


class _Mirror(ThreadingHTTPServer):
    """Serves one blob. The path says how: /good, /short (breaks off), /other, /page, /dead."""

    daemon_threads = True

    def __init__(self, blob: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.blob = blob
        self.sent: list[tuple[str, int]] = []  # path and number of bytes

    def url(self, way: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{way}"


class _Handler(BaseHTTPRequestHandler):
    server: _Mirror

    def do_GET(self) -> None:
        way = self.path.strip("/")
        if way == "dead":
            self.send_error(503, "out of order")
            return
        blob = self.server.blob if way != "other" else self.server.blob[::-1]
        body = b"<html>sorry</html>" if way == "page" else blob
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if way == "page" else "application/octet-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        body = body[: len(body) // 2] if way == "short" else body
        self.server.sent.append((way, len(body)))  # before the reader has it and looks here
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def mirror() -> Iterator[_Mirror]:
    server = _Mirror(BLOB)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def closed_port() -> str:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        return f"http://127.0.0.1:{server.server_address[1]}/gone"


def _item(*urls: str) -> Download:
    return Download("blob.bin", hashlib.md5(BLOB).hexdigest(), len(BLOB), urls)


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_file_arrives_whole_and_alone(mirror: _Mirror, tmp_path: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    download([_item(mirror.url("good"))], tmp_path / "new", lambda *step: seen.append(step))
    assert _contents(tmp_path / "new") == {"blob.bin": BLOB}
    assert seen[-1] == (len(BLOB), len(BLOB), "blob.bin")
    assert [done for done, _, _ in seen] == sorted({done for done, _, _ in seen})
    assert len(seen) > 2


def test_file_that_is_there_is_not_fetched_again(mirror: _Mirror, tmp_path: Path) -> None:
    (tmp_path / "blob.bin").write_bytes(BLOB)
    download([_item(mirror.url("good"))], tmp_path)
    assert mirror.sent == []


def test_wrong_file_that_is_there_is_replaced(mirror: _Mirror, tmp_path: Path) -> None:
    (tmp_path / "blob.bin").write_bytes(BLOB[::-1])
    download([_item(mirror.url("good"))], tmp_path)
    assert _contents(tmp_path) == {"blob.bin": BLOB}


def test_a_broken_transfer_leaves_nothing_and_says_so(mirror: _Mirror, tmp_path: Path) -> None:
    half = len(BLOB) // 2
    with pytest.raises(FedSeqError, match=f"the connection ended after {half} of {len(BLOB)} bytes"):
        download([_item(mirror.url("short"))], tmp_path)
    assert _contents(tmp_path) == {}


@pytest.mark.parametrize("first", ["dead", "page", "other", "short"])
def test_bad_mirror_is_passed_over(first: str, mirror: _Mirror, tmp_path: Path) -> None:
    download([_item(mirror.url(first), mirror.url("good"))], tmp_path)
    assert _contents(tmp_path) == {"blob.bin": BLOB}
    assert mirror.sent[-1] == ("good", len(BLOB))  # nothing of the first one was kept


def test_nobody_listening_is_passed_over(closed_port: str, mirror: _Mirror, tmp_path: Path) -> None:
    download([_item(closed_port, mirror.url("good"))], tmp_path)
    assert _contents(tmp_path) == {"blob.bin": BLOB}


def test_server_with_a_file_of_another_size_is_refused(mirror: _Mirror, tmp_path: Path) -> None:
    mirror.blob = BLOB + b"more"
    with pytest.raises(FedSeqError, match=f"it offers {len(BLOB) + 4} bytes instead of {len(BLOB)}"):
        download([_item(mirror.url("good"))], tmp_path)
    assert _contents(tmp_path) == {}


def test_when_all_fail_each_reason_is_given_and_what_to_do(closed_port: str, mirror: _Mirror, tmp_path: Path) -> None:
    item = _item(closed_port, mirror.url("dead"), mirror.url("page"), mirror.url("other"))
    second = Download("labels.bin", "0" * 32, 5, (mirror.url("good"),))
    with pytest.raises(FedSeqError) as caught:
        download([item, second], tmp_path)
    lines = str(caught.value).splitlines()
    reasons = ("refused", "503", "web page", "MD5")
    for line, url, reason in zip(lines[1:5], item.urls, reasons, strict=True):
        assert url in line
        assert reason in line
    assert str(tmp_path) in lines[5]
    assert lines[6:] == [f"  blob.bin  MD5 {item.md5}", f"  labels.bin  MD5 {'0' * 32}"]
    assert _contents(tmp_path) == {}


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FedSeqError, match="file/below cannot be made"):
        download([_item()], tmp_path / "file" / "below")


def test_downloaded_data_set_is_found_and_read(
    mirror: _Mirror, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = small_cifar(monkeypatch, "cifar100")
    archive = write_archive(tmp_path / "server", "cifar100", cifar_batches(monkeypatch, "cifar100", arrays))
    mirror.blob = archive.read_bytes()
    expect_archive(monkeypatch, "cifar100", archive, (mirror.url("good"),))
    assert get_dataset("cifar100") == cache / "datasets" / "cifar100"
    assert_same(load_dataset("cifar100"), arrays)
    assert get_dataset("cifar100", tmp_path / "chosen") == tmp_path / "chosen"
    assert_same(load_dataset("cifar100", tmp_path / "chosen"), arrays)


@pytest.mark.parametrize("name", ["digits", "npz:own.npz", "folder:pictures"])
def test_nothing_to_download(name: str) -> None:
    with pytest.raises(FedSeqError, match=f"nothing has to be downloaded for {name}"):
        get_dataset(name)


def test_unknown_name_is_refused() -> None:
    with pytest.raises(FedSeqError, match="unknown dataset 'mnist'"):
        get_dataset("mnist")
