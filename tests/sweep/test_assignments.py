from dataclasses import replace

import numpy as np
import pytest

from fedseq.basics.errors import FedSeqError
from fedseq.options.resolve import resolve
from fedseq.runs.reading import last_record
from fedseq.sweep.assignments import (
    Assignment,
    failure,
    from_json,
    is_done,
    refuse_other_runs,
    rounds_left,
)


def test_assignments_travel_as_text_and_know_how_far_they_are(tmp_path):
    from report.builders import make_run

    folder = make_run(tmp_path / "a", [0.1, 0.2], rounds=5, finished=False)
    config = resolve({"algorithm": "fedavg", "rounds": 5, "num_clients": 8, "speed_spread": 0.0})
    assignment = Assignment(folder, config)
    assert from_json(assignment.to_json()) == assignment
    assert rounds_left(assignment) == 3
    assert not is_done(assignment)
    assert last_record(folder)["round"] == 2
    (folder / "weights.safetensors").write_bytes(b"")
    assert not is_done(assignment)  # a finished run of fewer rounds
    assert is_done(replace(assignment, config=replace(config, rounds=2)))
    assert is_done(replace(assignment, config=replace(config, target_accuracy=0.15)))
    refuse_other_runs(assignment)
    with pytest.raises(FedSeqError, match="--lr"):
        refuse_other_runs(Assignment(folder, replace(config, lr=9.0)))
    assert rounds_left(Assignment(tmp_path / "none", config)) == 5


def test_a_run_that_diverged_is_not_tried_again(tmp_path):
    from report.builders import make_run

    folder = make_run(tmp_path / "a", [0.1], rounds=5, finished=False)
    (folder / "failure.txt").write_text("training diverged in round 2\n")
    assert failure(folder) == "training diverged in round 2"
    assert is_done(Assignment(folder, resolve({"algorithm": "fedavg", "rounds": 5})))


def test_a_damaged_study_is_made_again(tmp_path):
    assignment = Assignment(tmp_path, resolve({}), (1,))
    assert not is_done(assignment)
    np.savez_compressed(assignment.study, counts=np.arange(100))
    whole = assignment.study.read_bytes()
    assert is_done(assignment)
    for at in (5, len(whole) // 2, len(whole) - 10):
        assignment.study.write_bytes(whole[:at])
        assert not is_done(assignment)
    middle = whole.index(b"counts.npy") + 40  # of what is compressed
    assignment.study.write_bytes(whole[:middle] + bytes([whole[middle] ^ 4]) + whole[middle + 1 :])
    assert not is_done(assignment)
