"""A node that dies in the midst of its work, over real processes on loopback with TLS and keys."""

from pathlib import Path

import pytest

from flower.expected import BRIEF, NODES, OPTIONS, checksum, lines, on_one_machine, use_client
from flower.federations import Running, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # real processes, and perhaps a busy machine


def test_a_node_killed_in_a_chain_is_passed_over_and_used_again_when_it_is_back(tmp_path):
    with running(tmp_path / "fed", NODES, options=OPTIONS) as fed:
        kill_and_return(fed, tmp_path)


def kill_and_return(fed: Running, tmp_path: Path) -> None:
    """Client 2's node dies by SIGKILL in the midst of its visit in round 2; it is back for round 3."""
    processes = fed.folder / "processes.json"
    use_client(
        fed,
        '    if place == ("train", 2, 2):\n'
        f'        os.kill(json.loads(Path({str(processes)!r}).read_text())["node-2"]["pid"], signal.SIGKILL)\n'
        "        os._exit(1)\n",
    )
    out = tmp_path / "out"
    fed.run(*BRIEF, f"out={out}", "hop-deadline=75")
    record = lines(out)[1]
    assert [hop["client"] for hop in record["skipped"]] == [2]
    assert record["client_updates"] == NODES - 1
    expected = on_one_machine(tmp_path / "expected", missing=[(2, 2)], grouping="random", update_check="none")
    assert checksum(out) == checksum(expected)

    use_client(fed, "")
    fed.start(2)  # a minute: Flower lets the same key in again only when it has missed the node
    fed.run(*BRIEF, f"out={out}", "hop-deadline=90", "rounds=3")
    assert lines(out)[2]["skipped"] == []
    # FedDyn's memory of client 2 is that of round 1: it was on its disk, and round 2 never counted.
    expected = on_one_machine(tmp_path / "longer", missing=[(2, 2)], grouping="random", update_check="none", rounds=3)
    assert checksum(out) == checksum(expected)


@pytest.mark.timeout(500)  # less than one deadline
def test_a_node_that_does_not_say_who_it_is_costs_no_deadline(tmp_path):
    """Known from round 1, node 2 is connected afterwards, is asked, and never answers; two rounds go on without it."""
    with running(tmp_path / "fed", NODES, options=OPTIONS) as fed:
        out = tmp_path / "out"
        fed.run(*BRIEF, f"out={out}", "rounds=1")
        use_client(fed, "")
        app = fed.folder / "app" / "client_app.py"
        silent = 'def hello(message, context):\n    while context.node_config["partition-id"] == 2: signal.pause()\n'
        app.write_text(app.read_text().replace("def hello(message, context):\n", silent))
        said = fed.run(*BRIEF, f"out={out}", "rounds=3", "wait=20", "hop-deadline=600")
    assert "clients [2] are not connected; going on without them until they are" in said
    assert [[hop["client"] for hop in line["skipped"]] for line in lines(out)] == [[], [2], [2]]
    expected = on_one_machine(
        tmp_path / "expected", missing=[(2, 2), (3, 2)], grouping="random", update_check="none", rounds=3
    )
    assert checksum(out) == checksum(expected)
