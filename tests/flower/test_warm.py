"""The process that apps are forked off on a node, where everything is imported already."""

import time
from pathlib import Path

import pytest

from fedseq.flower import supernode
from flower.expected import NODES, checksum, lines, on_one_machine, use_client
from flower.federations import Running

KILL_THE_WARM_ONE = """
    warm = os.getppid()
    with open({notes!r}, "a") as notes:
        notes.write(Path("/proc/%d/cmdline" % warm).read_text().replace(chr(0), " ") + chr(10))
    if place == ("train", 1, 1):
        os.kill(warm, signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.timeout(900)  # real processes, and perhaps a busy machine
def test_apps_are_forked_off_a_warm_process_and_it_is_started_again_when_it_dies(fed: Running, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    use_client(fed, KILL_THE_WARM_ONE.format(notes=str(notes)))
    fed.run("algorithm=fedavg", "update_check=none", "out=warm")
    assert [record["skipped"] for record in lines(fed.folder / "warm")] == [[], []]
    parents = notes.read_text().splitlines()
    assert len(parents) == 2 * NODES
    assert all("multiprocessing.forkserver" in parent for parent in parents)
    assert checksum(fed.folder / "warm") == checksum(
        on_one_machine(tmp_path / "one", algorithm="fedavg", update_check="none")
    )


@pytest.mark.parametrize(("nodes", "pause"), [(1, 0.2), (10, 1.0), (1000, 3.0)])
def test_a_node_asks_often_while_there_is_work_and_seldom_where_there_are_many(monkeypatch, nodes, pause):
    slept: list[float] = []
    monkeypatch.setattr(supernode, "time", type("Time", (), {"monotonic": time.monotonic, "sleep": slept.append}))
    clock = supernode.ShortPauses(nodes)
    clock.sleep(3.0)  # no work was ever seen
    clock.sleep(0.5)  # an app is at work
    clock.sleep(3.0)
    assert slept == [3.0, min(0.5, pause), pause]
