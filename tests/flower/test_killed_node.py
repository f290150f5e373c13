"""A node that dies in the midst of its work, over real processes on loopback with TLS and keys."""

from pathlib import Path

import pytest

from flower.expected import BRIEF, NODES, checksum, lines, on_one_machine, use_client
from flower.federations import Running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # real processes, and perhaps a busy machine


def test_a_node_killed_in_a_chain_is_passed_over_and_used_again_when_it_is_back(fed: Running, tmp_path: Path) -> None:
    """Client 2's node dies by SIGKILL in the midst of its visit in round 2; it is back for round 3."""
    pid = fed.child(2).process.pid
    use_client(fed, f'    if place == ("train", 2, 2):\n        os.kill({pid}, signal.SIGKILL)\n        os._exit(1)\n')
    out = fed.folder / "node-killed"
    fed.run(*BRIEF, f"out={out.name}", "hop-deadline=75")
    record = lines(out)[1]
    assert [hop["client"] for hop in record["skipped"]] == [2]
    assert record["client_updates"] == NODES - 1
    expected = on_one_machine(tmp_path / "expected", missing=[(2, 2)], grouping="random", update_check="none")
    assert checksum(out) == checksum(expected)

    use_client(fed, "")
    fed.all_online()
    fed.run(*BRIEF, f"out={out.name}", "hop-deadline=90", "rounds=3")
    assert lines(out)[2]["skipped"] == []
    # FedDyn's memory of client 2 is that of round 1: it was on its disk, and round 2 never counted.
    expected = on_one_machine(tmp_path / "longer", missing=[(2, 2)], grouping="random", update_check="none", rounds=3)
    assert checksum(out) == checksum(expected)


@pytest.mark.timeout(500)  # less than one deadline
def test_a_node_that_does_not_say_who_it_is_costs_no_deadline(fed: Running, tmp_path: Path) -> None:
    """Known from round 1, node 2 is connected afterwards, is asked, and never answers; two rounds go on without it."""
    out = fed.folder / "node-silent"
    fed.run(*BRIEF, f"out={out.name}", "rounds=1")
    use_client(fed, "")
    app = fed.folder / "app" / "client_app.py"
    silent = 'def hello(message, context):\n    while context.node_config["partition-id"] == 2: signal.pause()\n'
    app.write_text(app.read_text().replace("def hello(message, context):\n", silent))
    said = fed.run(*BRIEF, f"out={out.name}", "rounds=3", "wait=20", "hop-deadline=600")
    fed.child(2).kill()  # and with it the app that waits
    assert "clients [2] are not connected; going on without them until they are" in said
    assert [[hop["client"] for hop in line["skipped"]] for line in lines(out)] == [[], [2], [2]]
    expected = on_one_machine(
        tmp_path / "expected", missing=[(2, 2), (3, 2)], grouping="random", update_check="none", rounds=3
    )
    assert checksum(out) == checksum(expected)
