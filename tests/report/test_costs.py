"""Simulated time by hand: a hop takes steps/speed + bytes/bandwidth."""

import pytest

from fedseq.errors import FedSeqError
from fedseq.report.costs import Devices, human_bytes, human_seconds, run_costs, steps_per_visit
from fedseq.report.reading import read

from .builders import make_run

ONE_SECOND_A_STEP = Devices(speed=1.0, bandwidth=200.0)  # and one second for the 200 bytes of a hop


def seconds(folder, devices=ONE_SECOND_A_STEP):
    return list(run_costs(read(folder), devices).seconds)


def test_fedavg_waits_for_its_slowest_client_and_fedseq_for_its_longest_chain(tmp_path):
    # One step and 200 bytes a hop: 2 seconds.
    assert seconds(make_run(tmp_path / "avg", [0.1, 0.2])) == [2, 4]
    chains = [[0, 1, 2], [4]]
    assert seconds(make_run(tmp_path / "seq", [0.1, 0.2], algorithm="fedseq", chains=chains)) == [6, 12]


def test_fedseqinter_waits_only_at_merges(tmp_path):
    # Slot 0 trains 3 clients, then 1; slot 1 trains 1, then 3. FedSeq waits 6 + 6, slots that wander 8 in all.
    folder = make_run(tmp_path / "inter", [0.1, 0.2, 0.3], algorithm="fedseqinter", merge_every=2)
    lines = folder.joinpath("metrics.jsonl").read_text().splitlines()
    short, long = '"clients": [[0, 1, 2], [4]]', '"clients": [[0], [4, 5, 6]]'
    whole = '"clients": [[0, 1, 2, 3], [4, 5, 6, 7]]'
    lines = [line.replace(whole, chains) for line, chains in zip(lines, (short, long, short), strict=True)]
    lines = [line.replace('"client_updates": 8', '"client_updates": 4').replace("800", "400") for line in lines]
    folder.joinpath("metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert seconds(folder) == [6, 8, 14]  # merged after round 2: both slots go on from 8


def test_scaffold_looks_at_the_data_twice_and_the_short_batch_counts(tmp_path):
    config = read(make_run(tmp_path / "a", [0.1], algorithm="scaffold", batch_size=4, client_epochs=2)).config
    assert steps_per_visit(config, [10]) == [9]  # (2 + 1) passes of ceil(10 / 4) steps


def test_speeds_spread_around_the_median_and_follow_from_the_seed():
    speeds = Devices(speed=10, spread=0.5, seed=1).speeds(2001)
    assert sorted(speeds)[1000] == pytest.approx(10, rel=0.1)
    assert speeds == Devices(speed=10, spread=0.5, seed=1).speeds(2001)
    assert Devices(speed=10).speeds(3) == [10] * 3


def test_a_slow_client_holds_up_its_round(tmp_path):
    folder = make_run(tmp_path / "a", [0.1], chains=[[0], [1]])
    devices = Devices(speed=1.0, bandwidth=200.0, spread=1.0, seed=0)
    assert seconds(folder, devices) == [pytest.approx(1 / min(devices.speeds(8)[:2]) + 1)]


def test_a_folder_that_does_not_tell_has_no_clock(tmp_path):
    folder = make_run(tmp_path / "a", [0.1, 0.2])
    (folder / "clients.json").unlink()
    costs = run_costs(read(folder), Devices())
    assert costs.seconds == ()
    assert costs.until(2) == (4, 800, None)


@pytest.mark.parametrize("options", [{"speed": 0}, {"bandwidth": -1}, {"spread": -0.1}, {"spread": 9}])
def test_impossible_devices_are_refused(options):
    with pytest.raises(FedSeqError, match="must be"):
        Devices(**options)


def test_units_are_readable():
    assert [human_bytes(n) for n in (5, 1500, 2.5e6, 3e12)] == ["5 B", "1.5 kB", "2.5 MB", "3 TB"]
    assert [human_seconds(n) for n in (5, 600, 7200, 8e5)] == ["5 s", "10.0 min", "2.0 h", "9.3 days"]
