"""What a worker process does: one assignment after another, a line of JSON in, a line of text out."""

import io
from typing import TextIO

import numpy as np

from fedseq.api import experiment
from fedseq.api.grouping_study import make_study, prepare
from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import write_atomically
from fedseq.basics.stopping import Interrupted
from fedseq.grouping.study import label
from fedseq.runs.folder import RunFolder
from fedseq.sweep.assignments import FAILURE, Assignment, from_json
from fedseq.training.reporter import QUIET


def work(assignment: Assignment) -> str:
    """How it went: finished, interrupted, or why it failed."""
    assignment.folder.mkdir(parents=True, exist_ok=True)
    (assignment.folder / FAILURE).unlink(missing_ok=True)
    try:
        if assignment.epochs:
            write_study(assignment)
        else:
            experiment.run(assignment.config, assignment.folder)
    except Interrupted:
        return "interrupted"
    except FedSeqError as error:
        write_atomically(assignment.folder / FAILURE, f"{error}\n".encode())
        return str(error)
    RunFolder(assignment.folder).drop_pretraining()
    return "finished"


def write_study(assignment: Assignment) -> None:
    """Superclients by every criterion, and what pre-training tells of clients, in one file of arrays."""
    found = make_study(prepare(assignment.config, True, QUIET), assignment.epochs, assignment.folder, QUIET)
    arrays: dict[str, np.ndarray] = {"counts": found.counts}
    for epochs, matrix in found.similarity.items():
        arrays[f"similarity {epochs}"] = matrix.astype(np.float32)
    for name, by_epochs in found.reductions.items():
        for epochs, reduction in by_epochs.items():
            arrays[f"components {name} {epochs}"] = np.array([reduction.kept, reduction.possible, reduction.weights])
    for formed in found.formed:
        group_of = np.full(len(found.counts), -1)
        for number, group in enumerate(formed.grouping.groups):
            group_of[list(group)] = number
        arrays[f"groups {label(formed.criterion)}"] = group_of
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]
    write_atomically(assignment.study, packed.getvalue())


def serve(lines: TextIO, answers: TextIO) -> None:
    for line in lines:
        outcome = work(from_json(line))
        answers.write(outcome.replace("\n", " ") + "\n")
        answers.flush()
        if outcome == "interrupted":
            return
