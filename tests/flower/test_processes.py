"""Whom we end: only processes that carry a mark of ours, whatever a file in a folder from elsewhere says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedseq.basics.errors import FedSeqError
from fedseq.flower.deployment import processes

# Code that trusted the file would end every process it can reach: here it reaches those of its own namespace alone.
ALONE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
MARK = "0123456789abcdef" * 2

TRY = """
import json, os, subprocess, sys, time
from pathlib import Path
import psutil
from fedseq.basics.errors import FedSeqError
from fedseq.flower.deployment import folder, local, site
from fedseq.flower.deployment.federation import Federation

assert os.getpid() == 1 and len(psutil.pids()) == 1, psutil.pids()
federation = folder.init(Path("fed"), 1)
kit = Path("kit")
kit.mkdir()
for name in ("kit.json", "ca.crt"):
    (kit / name).write_text(site.read_kit(federation.kit(0)).files[name])
joined = site.settle(federation.kit(0), Path("joined"))


def down():
    local.down(federation)


def join():
    site.stay(site.settle(kit), print)


def join_again():
    with site._held(joined):
        pass


said = {}
for action, file, wrapped in (
    (down, federation.folder / "processes.json", True),
    (join, kit / "process.json", False),
    (join_again, joined.folder / "process.json", False),
):
    for number, facts in enumerate(json.loads(sys.argv[1])):
        theirs = facts == {"pid": "theirs"}
        if theirs and action is join:  # would wait for its SuperLink
            continue
        bystanders = [subprocess.Popen(["sleep", "1000"]) for _ in range(7)]
        bystanders.append(subprocess.Popen(["sleep", "1000"], env={**os.environ, "FEDSEQ_FEDERATION": ""}))
        if theirs:
            facts = {"pid": bystanders[0].pid, "mark": "0123456789abcdef" * 2}
        file.write_text(json.dumps({"node-0": facts} if wrapped else facts))
        trial = os.fork()
        if trial == 0:
            try:
                action()
                os._exit(0)
            except FedSeqError as error:
                os._exit(2 if str(file.name) in str(error) else 3)
        deadline = time.monotonic() + 5
        while (ended := os.waitpid(trial, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
            time.sleep(0.05)
        said[f"{action.__name__} {number}"] = [
            sum(bystander.poll() is None for bystander in bystanders),
            os.waitstatus_to_exitcode(ended[1]) if ended[0] else "does not end",
        ]
        if not ended[0]:
            os.kill(trial, 9)
            os.waitpid(trial, 0)
        for bystander in bystanders:
            bystander.kill()
            bystander.wait()
print(json.dumps(said))
"""
FOREIGN = [
    {"pid": 1, "mark": None},
    {"pid": 1},
    {"pid": True, "mark": MARK},
    {"pid": 0, "mark": MARK},
    {"pid": 1.0, "mark": MARK},
    {"pid": 1, "mark": ""},
    {"pid": 1, "mark": MARK.upper()},
    {"pid": 1, "mark": f"{MARK}\n"},
    None,
    [1],
]


@pytest.mark.slow
def test_a_file_in_a_folder_does_not_decide_whom_we_end(tmp_path: Path) -> None:
    if not sys.platform.startswith("linux") or subprocess.run([*ALONE, "true"], capture_output=True).returncode:
        pytest.skip("no PID namespace can be made here")
    tried = [*FOREIGN, {"pid": "theirs"}]
    command = [*ALONE, sys.executable, "-c", TRY, json.dumps(tried)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    alive = {name: count for name, (count, _) in said.items()}
    assert alive == dict.fromkeys(alive, 8)
    codes = {name: code for name, (_, code) in said.items()}
    foreign, theirs = range(len(FOREIGN)), len(FOREIGN)
    assert codes == {
        **{f"{action} {number}": 2 for action in ("down", "join", "join_again") for number in foreign},
        **{f"{action} {theirs}": 0 for action in ("down", "join_again")},  # it has no such mark, and is left alone
    }


def test_a_process_is_ended_by_the_mark_that_it_carries_and_by_nothing_else(tmp_path: Path) -> None:
    ours = processes.start(["sleep", "1000"], dict(os.environ), tmp_path, tmp_path / "log")
    other = processes.start(["sleep", "1000"], dict(os.environ), tmp_path, tmp_path / "log")
    try:
        assert processes.recorded(vars(ours), tmp_path / "process.json") == ours
        processes.stop([processes.Process(other.pid, MARK)], 1)
        assert ours.alive
        assert other.alive
        processes.stop([ours], 5)
        assert not ours.alive
        assert other.alive
    finally:
        processes.kill([ours, other])
    for facts in FOREIGN:
        with pytest.raises(FedSeqError, match=r"(?s)process\.json names a process that fedseq did not start.*by hand"):
            processes.recorded(facts, tmp_path / "process.json")
