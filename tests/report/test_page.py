"""The page as a file: self-contained, honest about damaged folders, careful with other people's files."""

import contextlib
import json
import os
import re
import shlex
import shutil
import socket
import threading
import urllib.error
import urllib.request
from dataclasses import replace

import pytest

from fedseq.basics.errors import FedSeqError
from fedseq.cli import main
from fedseq.options.resolve import resolve
from fedseq.report import page
from fedseq.report.page import make_server, skipped, summarise, thin
from fedseq.report.series import command
from fedseq.runs.reading import Broken, broken, read, read_all

from .builders import make_run


@pytest.fixture
def runs(tmp_path):
    make_run(tmp_path / "runs" / "avg", [0.1, 0.2, 0.5, 0.75])
    make_run(tmp_path / "runs" / "seq", [0.2, 0.8, 0.9, 0.9], algorithm="fedseq")
    return tmp_path / "runs"


def test_report_writes_one_page_without_addresses(runs, capsys):
    assert main(["report", str(runs), "-o", "out/r.html"]) == 0
    text = (runs.parent / "out" / "r.html").read_text()
    outside = set(re.findall(r"https?://[^\s\"'<]+", text)) - {"http://www.w3.org/2000/svg"}
    assert not outside
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=(?!\"data:,\")", text)
    assert "2 runs in out/r.html" in capsys.readouterr().out


def test_hostile_names_stay_text(tmp_path):
    folder = make_run(tmp_path / "</script><script>alert(1)</script>", [0.5])
    text = page.render(summarise([read(folder)]))
    assert "</script><script>alert" not in text
    assert text.count("</script>") == 2


def test_a_report_is_replaced_and_another_file_is_not(runs):
    assert main(["report", str(runs)]) == 0
    assert main(["report", str(runs)]) == 0
    (runs.parent / "mine.html").write_text("my notes")
    assert main(["report", str(runs), "-o", "mine.html"]) == 2
    assert (runs.parent / "mine.html").read_text() == "my notes"
    assert main(["report", str(runs), "-o", "mine.html", "--force"]) == 0
    assert main(["report", str(runs), "-o", str(runs)]) == 2
    os.mkfifo("pipe")
    for place in ("pipe", "/dev/null"):
        assert main(["report", str(runs), "-o", place, "--force"]) == 2


def damage(kind, folder):
    if kind == "empty":
        shutil.rmtree(folder)
        folder.mkdir()
    elif kind == "torn in the middle":
        path = folder / "metrics.jsonl"
        path.write_text(path.read_text().replace('{"round": 2', '{"roun'))
    elif kind == "rounds go back":
        path = folder / "metrics.jsonl"
        path.write_text(path.read_text() * 2)
    elif kind == "no text":
        (folder / "metrics.jsonl").write_bytes(b"\xff\xfe\x00\n")
    elif kind == "other version":
        (folder / "config.yaml").write_text("portion: 0.2\n")
        (folder / "environment.json").write_text(json.dumps({"fedseq": "9.9"}))
    elif kind == "config is a list":
        (folder / "config.yaml").write_text("[1, 2]")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("empty", "no run in it"),
        ("torn in the middle", "line 2"),
        ("rounds go back", "line 5"),
        ("no text", "line 1"),
        ("other version", "made by fedseq 9.9"),
        ("config is a list", "option: value"),
    ],
)
def test_a_damaged_folder_is_reported_in_its_place_and_the_rest_is_shown(kind, words, runs, capsys):
    damage(kind, make_run(runs.parent / "bad", [0.1, 0.2, 0.3, 0.4]))
    found = read_all([runs, runs.parent / "bad"])
    (bad,) = broken(found)
    assert words in bad.reason
    summary = summarise(found)
    assert summary["broken"][0]["folder"].endswith("bad")
    assert len(summary["datasets"][0]["runs"]) == 2
    assert main(["compare", str(runs), str(runs.parent / "bad")]) == 0
    out = capsys.readouterr().out
    assert re.search(r"\| fedseq +\|", out)
    assert re.search(r"unreadable +\|", out)
    assert f"bad is unreadable: {bad.reason}" in out


def test_a_page_does_not_tell_where_files_lie(runs, tmp_path):
    (tmp_path / "weights.safetensors").touch()
    secret = tmp_path / "secret"
    folder = make_run(runs.parent / "own", [0.1], dataset=f"csv:{secret}/visits.csv", data_dir=str(secret))
    damage("torn in the middle", make_run(runs.parent / "bad", [0.1, 0.2]))
    text = page.render(summarise(read_all([runs.resolve(), folder.resolve(), (runs.parent / "bad").resolve()])))
    assert "csv:visits.csv" in text
    assert str(tmp_path) not in text
    assert str(runs.parent.resolve()) not in text


def test_nothing_readable_is_still_a_page(tmp_path):
    summary = summarise([Broken(tmp_path, "gone")])
    assert "gone" in page.render(summary)
    assert summarise([])["datasets"] == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("clients.json", '{"examples": "many"}'), ("clients.json", '{"examples": [1], "label_counts": [[1], [1]]}'),
        ("superclients.json", "{"), ("superclients.json", '{"superclients": [[0, 99]]}'), ("timing.jsonl", "{\n"),
        ("environment.json", "[]"),
    ],
)  # fmt: skip
def test_side_files_that_are_nonsense_are_named(runs, name, content):
    (runs / "seq" / name).write_text(content)
    (bad,) = broken(read_all([runs]))
    assert f"seq/{name}" in bad.reason
    assert "damaged" in bad.reason


def test_side_files_may_be_missing(runs):
    for name in ("clients.json", "superclients.json", "timing.jsonl", "environment.json"):
        (runs / "seq" / name).unlink()
    (run,) = [r for r in summarise(read_all([runs]))["datasets"][0]["runs"] if "fedseq" in r["label"]]
    assert run["superclients"] is None
    assert run["seconds"] == {}


def test_superclients_of_clients_whose_labels_nobody_knows(runs):
    """As the server of a federation has them."""
    (runs / "seq" / "clients.json").write_text('{"examples": [10, 10, 10, 10, 10, 10, 10, 10]}')
    (run,) = [r for r in summarise(read_all([runs]))["datasets"][0]["runs"] if "fedseq" in r["label"]]
    assert (run["superclients"], run["groups"]) == (None, 2)


def test_a_run_in_progress_may_have_half_a_last_line(runs):
    with (runs / "avg" / "metrics.jsonl").open("a") as file:
        file.write('{"round": 5, "accu')
    run = read(runs / "avg")
    assert not isinstance(run, Broken)
    assert run.rounds == 4


def test_summary_holds_what_the_page_shows(runs):
    (dataset,) = summarise(read_all([runs]), bound=1.0)["datasets"]
    avg, seq = dataset["series"]
    assert seq["curve"]["accuracy"] == [0.2, 0.8, 0.9, 0.9]
    assert seq["curve"]["updates"] == [88, 96, 104, 112]  # 8 clients' ten epochs of pre-training, then 8 a round
    assert [cell["text"] for cell in seq["cells"][4:7]] == ["2", "> 4", "2.0x"]
    assert dataset["headlines"]["0"] == (
        "fedseq reaches 80 % of the bound in 2 rounds, more than 2.0 times sooner than FedAvg. "
        "FedAvg has not run long enough to tell about simulated time."
    )
    run = dataset["runs"][1]
    assert run["superclients"] == [[10, 10, 10, 10], [10, 10, 10, 10]]
    assert run["seconds"] == {"train": 4.0, "evaluate": 1.0}
    assert avg["costs"][2]["text"] == "-"


def test_skipped_hops_are_counted_by_reason(tmp_path):
    hop = {"unit": 0, "client": 3, "reason": "offline"}
    run = read(make_run(tmp_path / "a", [0.1, 0.2], skipped=[hop, {**hop, "client": 4}]))
    assert skipped(run) == [{"reason": "offline", "count": 4, "rounds": [1, 2], "clients": [3, 4]}]


def test_long_curves_keep_their_ends_and_their_peaks():
    values = [0.5] * 5000
    values[1234], values[4000] = 0.9, 0.1
    kept = thin(values)
    assert len(kept) <= 602
    assert {0, 1234, 4000, 4999} <= set(kept)


def test_the_command_repeats_the_config(monkeypatch):
    from fedseq.cli import build_parser, config_from

    options = {"algorithm": "fedseq+fedprox", "alpha": 0.2, "mu": 0.003, "seed": 4, "lr": 0.05, "grouping": "random"}
    config = resolve(options)
    words = command(config).split()
    assert words[:2] == ["fedseq", "run"]
    assert config_from(build_parser().parse_args(words[1:])) == config


@pytest.mark.parametrize("value", [0.1, 1e-5, 3, True, "yes", "a b", (1, 2.5, "c"), float("inf")])
def test_the_command_repeats_hyper_parameters_of_ones_own_rule(value):
    from fedseq.cli import build_parser, config_from

    config = replace(resolve({"algorithm": "fedseq+mine:smoothed"}), rules=(("smoothed.keep", value),))
    words = shlex.split(command(config))
    assert "--rule" in words
    read_again = config_from(build_parser().parse_args(words[1:]))
    assert dict(read_again.rules)["smoothed.keep"] == value


def test_watch_serves_the_page_and_new_numbers_to_this_machine_only(runs):
    server = make_server(lambda: summarise(read_all([runs]), live=True))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    host, port = server.server_address[:2]
    assert host == "127.0.0.1"
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
            assert page.MARK in answer.read().decode()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/data.json") as answer:
            assert json.load(answer)["live"] is True
        for path, headers in (("/../etc/passwd", {}), ("/data.json", {"Host": "evil.example"})):
            request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen(request)
        with pytest.raises(FedSeqError, match="--port"):
            make_server(dict, port)
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.slow
def test_watch_cannot_be_kept_busy(runs, monkeypatch):
    """A hundred that say nothing, one that never ends its request, one that does not take its answer."""
    monkeypatch.setattr("fedseq.report.page.PATIENCE", 3.0)
    summary = {**summarise(read_all([runs]), live=True), "long": "x" * 20_000_000}
    server = make_server(lambda: summary)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        idle = [socket.create_connection(server.server_address[:2], timeout=60) for _ in range(100)]
        idle[50].sendall(b"GET / HTTP/1.0\r\nHost: localhost\r\n")  # and no empty line
        idle[51].sendall(b"GET /data.json HTTP/1.0\r\nHost: localhost\r\n\r\n")
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_address[1]}/data.json", timeout=60) as answer:
            assert json.load(answer)["live"] is True
        assert [_until_closed(connection) for number, connection in enumerate(idle) if number != 51] == [b""] * 99
        assert len(_until_closed(idle[51])) < 20_000_000
    finally:
        server.shutdown()
        server.server_close()


def _until_closed(connection):
    """Everything that still comes; a connection that stays open is an error, by its timeout."""
    found = []
    with connection, contextlib.suppress(ConnectionError):
        while part := connection.recv(2**20):
            found.append(part)
    return b"".join(found)


@pytest.mark.parametrize(
    "words",
    [
        ["watch", "nowhere"],
        ["watch", ".", "--port", "x"],
        ["compare", "nowhere"],
        ["report", "nowhere"],
        ["report", "."],  # no run in it
        ["report", ".", "--bandwidth", "fast"],
        ["compare", ".", "--bound", "2"],
    ],
)
def test_wrong_words_are_refused(words, capsys):
    assert main(words) == 2
    assert capsys.readouterr().err.startswith("fedseq: error: ")


def test_a_mean_of_five_evaluations_is_of_five_evaluations_however_many_are_drawn(tmp_path):
    accuracies = [round_ % 7 / 10 for round_ in range(1, 2001)]
    folder = make_run(tmp_path / "a", accuracies)
    curve = summarise(read_all([folder]))["datasets"][0]["series"][0]["curve"]
    assert len(curve["rounds"]) < 700
    for round_, mean in zip(curve["rounds"], curve["smooth"]["accuracy"], strict=True):
        last = accuracies[max(0, round_ - 5) : round_]
        assert mean == pytest.approx(sum(last) / len(last)), round_
