"""Simulated time by hand: a hop takes steps/speed + bytes/bandwidth."""

import json
import math
from itertools import pairwise

import pytest
import torch
from torch import nn

import fedseq
from fedseq.algorithms.base import Algorithm
from fedseq.basics import seeds
from fedseq.basics.errors import FedSeqError
from fedseq.report.costs import describe_clients, human_bytes, human_seconds, run_costs
from fedseq.runs.reading import read
from fedseq.simulation.clock import Clock, WhatIf

from .builders import SUPERCLIENTS, make_run, write

ONE_SECOND_A_STEP = {"client_speed": 1.0, "bandwidth": 200.0}  # and one second for the 200 bytes of a hop


def seconds(folder, what_if=None):
    return list(run_costs(read(folder), what_if or WhatIf()).seconds)


def change_lines(folder, *changes):
    """Each round's record, changed."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    changed = [json.dumps({**line, **change}) for line, change in zip(lines, changes, strict=True)]
    (folder / "metrics.jsonl").write_text("\n".join(changed) + "\n")


def test_fedavg_waits_for_its_slowest_client_and_fedseq_for_its_longest_chain(tmp_path):
    # One step and 200 bytes a hop: 2 seconds.
    assert seconds(make_run(tmp_path / "avg", [0.1, 0.2], **ONE_SECOND_A_STEP)) == [2, 4]
    chains = [[0, 1, 2], [4]]
    folder = make_run(tmp_path / "seq", [0.1, 0.2], algorithm="fedseq", chains=chains, **ONE_SECOND_A_STEP)
    assert seconds(folder) == [6, 12]


def test_fedseqinter_waits_only_at_merges(tmp_path):
    # Slot 0 trains 3 clients, then 1; slot 1 trains 1, then 3. FedSeq waits 6 + 6, slots that wander 8 in all.
    folder = make_run(tmp_path / "i", [0.1, 0.2, 0.3], algorithm="fedseqinter", merge_every=2, **ONE_SECOND_A_STEP)
    four = {"client_updates": 4, "bytes_down": 400, "bytes_up": 400}
    short, long = {**four, "clients": [[0, 1, 2], [4]]}, {**four, "clients": [[0], [4, 5, 6]]}
    change_lines(folder, short, long, short)
    assert seconds(folder) == [6, 8, 14]  # merged after round 2: both slots go on from 8


def test_a_chain_that_was_dropped_does_not_shift_the_slots_of_others(tmp_path):
    # Slot 0 loses all of its chain in round 1 (two hops of 2 s that nobody answered); slot 1 trains 3, then slot 0 3.
    folder = make_run(tmp_path / "i", [0.1, 0.2], algorithm="fedseqinter", merge_every=2, **ONE_SECOND_A_STEP)
    three = {"client_updates": 3, "bytes_down": 300, "bytes_up": 300, "drawn": [7, 3]}
    lost = [{"unit": 7, "client": client, "reason": "dropout"} for client in (0, 1)]
    change_lines(
        folder,
        {**three, "units": [3], "clients": [[4, 5, 6]], "skipped": lost},
        {**three, "units": [7], "clients": [[0, 1, 2]], "skipped": []},
    )
    assert seconds(folder) == [6, 10]  # slots at (4, 6), then (4 + 6, 6); shifted, it would be (6 + 6, 0 + 4)


@pytest.mark.parametrize(
    ("deadline", "reason", "expected"),
    [
        (None, "dropout", 2 + 2),  # noticed when the answer was due
        (5.0, "dropout", 5 + 2),
        (5.0, "deadline", 5 + 2),
        (5.0, "change 9 is more than 2", 2 + 2),  # it was computed and sent
    ],
)
def test_hops_that_do_not_count_cost_their_time(tmp_path, deadline, reason, expected):
    folder = make_run(tmp_path / "a", [0.1], chains=[[1]], deadline=deadline, **ONE_SECOND_A_STEP)
    moved = 200 if reason.startswith("change") else 100
    hop = {"unit": 0, "client": 0, "reason": reason}
    change_lines(folder, {"skipped": [hop], "bytes_down": moved, "bytes_up": moved})
    assert seconds(folder) == [expected]


def test_scaffold_looks_at_the_data_twice_and_the_short_batch_counts(tmp_path):
    # (2 + 1) passes of ceil(10 / 4) steps, and a second for the bytes.
    folder = make_run(
        tmp_path / "a", [0.1], algorithm="fedseq+scaffold", batch_size=4, local_epochs=2, chains=[[0]],
        **ONE_SECOND_A_STEP,
    )  # fmt: skip
    assert seconds(folder) == [10]


def test_speeds_spread_around_the_median_and_follow_from_the_seed(tmp_path):
    config = read(make_run(tmp_path / "a", [0.1], speed_spread=0.5, seed=1)).config
    clock = Clock(config, 1, 0)
    speeds = [clock.speed(client) for client in range(2001)]
    assert sorted(speeds)[1000] == pytest.approx(10, rel=0.1)
    assert speeds[7] == Clock(config, 1, 0).speed(7)
    assert speeds[7] == 10 * math.exp(0.5 * seeds.generator(1, "client-speed", 7).standard_normal())


def test_the_runs_own_options_are_used_and_others_may_be_tried(tmp_path):
    folder = make_run(tmp_path / "a", [0.1], chains=[[0], [1]], **ONE_SECOND_A_STEP, speed_spread=1.0)
    speeds = [math.exp(seeds.generator(0, "client-speed", client).standard_normal()) for client in (0, 1)]
    assert seconds(folder) == [pytest.approx(1 / min(speeds) + 1)]
    assert seconds(folder, WhatIf(speed_spread=0.0)) == [2]
    assert seconds(folder, WhatIf(speed_spread=0.0, bandwidth=100.0, client_speed=2.0)) == [2.5]
    assert "spread 1, 200 B/s" in describe_clients([read(folder)])
    assert "as each run" in describe_clients([read(folder), read(make_run(tmp_path / "b", [0.1]))])


def test_pretraining_is_counted_before_the_first_round(tmp_path):
    """By hand: 8 clients make 3 epochs of one step; one of them, with 25 examples in batches of 10, makes 3 of 3 steps.

    A round is two chains of four hops of 200 bytes. A step takes a second, and so do 200 bytes.
    """
    options = {"algorithm": "fedseq", "pretrain_epochs": 3, "batch_size": 10, **ONE_SECOND_A_STEP}
    folder = make_run(tmp_path / "estimated", [0.1, 0.2], **options)
    told = json.loads((folder / "clients.json").read_text())
    (folder / "clients.json").write_text(json.dumps({**told, "examples": [10, 10, 10, 10, 10, 10, 10, 25]}))
    found = run_costs(read(folder))
    assert found.before == (8 * 3, 8 * 200, 3 * 3 + 1, None)
    # Of the second chain's hops one takes 3 steps in place of one: 3 * (1 + 1) + 3 + 1 seconds a round.
    assert found.until(2) == (24 + 16, 1600 + 3200, 10 + 20, None)
    alone = {**options, "pretrain_epochs": None, "grouping": "random"}
    assert run_costs(read(make_run(tmp_path / "chance", [0.1], **alone))).before == (0, 0, 0, None)
    given = make_run(tmp_path / "given", [0.1], **options)
    write(given / "superclients.json", {"method": "given", "superclients": SUPERCLIENTS})
    assert run_costs(read(given)).before == (0, 0, 0, None)


def test_units_of_an_algorithm_without_superclients_are_clients(tmp_path):
    """Merged after as many rounds as there are units. By hand: slots with one client and three meet after round 8."""
    folder = make_run(tmp_path / "a", [0.1] * 8, chains=[[0], [1, 2, 3]], **ONE_SECOND_A_STEP)
    told = json.loads((folder / "clients.json").read_text())
    write(folder / "clients.json", {**told, "algorithm": {**told["algorithm"], "merge_every": None}})
    change_lines(folder, *({"clients": [[0], [1, 2, 3]][:: 1 if r % 2 else -1]} for r in range(8)))
    assert seconds(folder) == [6, 8, 14, 16, 22, 24, 30, 32]  # 8 each 2 rounds, where each round alone waits for 6


def test_a_folder_that_does_not_tell_has_no_clock(tmp_path):
    folder = make_run(tmp_path / "a", [0.1, 0.2])
    (folder / "clients.json").unlink()
    costs = run_costs(read(folder))
    assert costs.seconds == ()
    assert costs.until(2) == (4, 800, None, None)


@pytest.mark.parametrize(
    "options", [{"client_speed": 0}, {"bandwidth": -1}, {"speed_spread": -0.1}, {"speed_spread": 9}]
)
def test_impossible_clients_are_refused(options):
    with pytest.raises(FedSeqError, match="must be"):
        WhatIf(**options)


SHORT = {"rounds": 4, "engine": "serial", "num_clients": 20}


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold", "feddyn", "fedseq+scaffold", "fedseqinter"])
def test_the_deadline_of_a_run_and_the_report_go_by_the_same_clock(tmp_path, algorithm):
    """Of each round the report shows the slowest chain; with one client a chain, nobody is later than the deadline."""
    grouped = {"grouping": "random"} if "fedseq" in algorithm else {}
    clients_of = {"client_speed": 2.0, "bandwidth": 3e5, "deadline": 1.3}
    run = fedseq.run({**SHORT, **grouped, **clients_of}, tmp_path / "run", algorithm=algorithm)
    reasons = {hop["reason"] for line in run.metrics for hop in line["skipped"]}
    assert reasons == {"deadline"}
    clients = json.loads((run.folder / "clients.json").read_text())
    parameters = 16 * 9 + 16 + 32 * 16 * 9 + 32 + 512 * 10 + 10
    moved = 2 * 4 * parameters * (2 if "scaffold" in algorithm else 1)
    for line in run.metrics:  # every hop that was made was in time, and every one that was not would have been late
        assert line["bytes_down"] + line["bytes_up"] == moved * line["client_updates"]
        late = {hop["client"] for hop in line["skipped"]}
        for client in [*late, *(client for chain in line["clients"] for client in chain)]:
            speed = 2 * math.exp(0.5 * seeds.generator(0, "client-speed", client).standard_normal())
            passes = 2 if "scaffold" in algorithm else 1
            steps = passes * math.ceil(clients["examples"][client] / 64)
            assert (steps / speed + moved / 3e5 > 1.3) == (client in late)
    if algorithm in ("fedavg", "scaffold", "feddyn"):
        clocks = [0.0, *run_costs(run).seconds]
        each = [after - before for before, after in pairwise(clocks)]
        assert all(one == pytest.approx(1.3) for one, line in zip(each, run.metrics, strict=True) if line["skipped"])


class Sum(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))

    def forward(self, x):
        return (x * self.weight).sum(1, keepdim=True)


def test_an_algorithm_of_ones_own_is_counted_by_what_it_is(tmp_path):
    # 12 examples in batches of 4: 3 steps, with two more passes 9; 2 * 3 floats are 24 bytes.
    # Slots wait for each other every 2 rounds; one client each, all alike, so that every round takes 9 + 24/24 s.
    clients = [(torch.ones(12, 3), torch.ones(12, 1))] * 3
    own = Algorithm("my very own", extra_passes=2, merge_every=2)
    run = fedseq.federate(
        Sum, clients, clients[0], own, loss=nn.functional.mse_loss, folder=tmp_path / "own", rounds=3, batch_size=4,
        engine="serial", fraction=1.0, client_speed=1.0, speed_spread=0.0, bandwidth=24.0,
    )  # fmt: skip
    assert list(run_costs(run).seconds) == [10, 20, 30]


def test_units_are_readable():
    assert [human_bytes(n) for n in (5, 1500, 2.5e6, 3e12)] == ["5 B", "1.5 kB", "2.5 MB", "3 TB"]
    assert [human_seconds(n) for n in (5, 600, 7200, 8e5)] == ["5 s", "10.0 min", "2.0 h", "9.3 days"]
