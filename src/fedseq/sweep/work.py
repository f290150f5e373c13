"""A worker process of a sweep: one assignment after another, a line of JSON in, a line of text out.

It loads torch once. Before it does, it heeds signals and the end of its parent; so what needs torch is imported late.
"""

import io
import signal
import sys
from typing import TYPE_CHECKING

from fedseq.basics import stopping
from fedseq.basics.processes import end_with_parent

if TYPE_CHECKING:
    from fedseq.sweep.assignments import Assignment


def main() -> None:
    stopping.obey()
    if not end_with_parent(int(sys.argv[1]), signal.SIGTERM):  # by which a run is saved
        return
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever is printed on the way is no answer
    try:
        import torch

        from fedseq.sweep.assignments import from_json

        torch.set_num_threads(1)
        for line in sys.stdin:
            outcome = work(from_json(line))
            answers.write(outcome.replace("\n", " ") + "\n")
            answers.flush()
            if outcome == "interrupted":
                return
    except KeyboardInterrupt:
        sys.exit(stopping.INTERRUPTED)


def work(assignment: "Assignment") -> str:
    """How it went: finished, interrupted, or why it failed."""
    from fedseq.api import experiment
    from fedseq.basics.errors import FedSeqError
    from fedseq.basics.files import write_atomically
    from fedseq.runs.folder import RunFolder
    from fedseq.sweep.assignments import FAILURE

    assignment.folder.mkdir(parents=True, exist_ok=True)
    (assignment.folder / FAILURE).unlink(missing_ok=True)
    try:
        if assignment.epochs:
            write_study(assignment)
        else:
            experiment.run(assignment.config, assignment.folder)
    except stopping.Interrupted:
        return "interrupted"
    except FedSeqError as error:
        write_atomically(assignment.folder / FAILURE, f"{error}\n".encode())
        return str(error)
    RunFolder(assignment.folder).drop_pretraining()
    return "finished"


def write_study(assignment: "Assignment") -> None:
    """Superclients by every criterion, and what pre-training tells of clients, in one file of arrays."""
    import numpy as np

    from fedseq.api.grouping_study import make_study, prepare
    from fedseq.basics.files import write_atomically
    from fedseq.grouping.study import label
    from fedseq.training.reporter import QUIET

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


if __name__ == "__main__":
    main()
