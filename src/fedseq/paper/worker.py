"""A process that does one task after another, so that torch is loaded once: a line of JSON in, a line of text out."""

import shutil
import signal
import sys
from typing import TextIO

import numpy as np
import torch

from fedseq import experiment, groupstudy
from fedseq.errors import FedSeqError
from fedseq.federation import Interrupted
from fedseq.paper.tasks import FAILURE, Task, from_json
from fedseq.progress import QUIET


def work(task: Task) -> str:
    """How it went: finished, interrupted, or why it failed."""
    task.folder.mkdir(parents=True, exist_ok=True)
    (task.folder / FAILURE).unlink(missing_ok=True)
    try:
        if task.epochs:
            study(task)
        else:
            experiment.run(task.config, task.folder)
    except Interrupted:
        return "interrupted"
    except FedSeqError as error:
        (task.folder / FAILURE).write_text(f"{error}\n", encoding="utf-8")
        return str(error)
    shutil.rmtree(task.folder / "pretraining", ignore_errors=True)  # gigabytes of weights that nobody needs any more
    return "finished"


def study(task: Task) -> None:
    """Superclients by every criterion, and what pre-training tells of clients, in one file of arrays."""
    found = groupstudy.study(groupstudy.prepare(task.config, True, QUIET), task.epochs, task.folder, QUIET)
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
        arrays[f"groups {groupstudy.label(formed.criterion)}"] = group_of
    temporary = task.study.with_suffix(".tmp.npz")
    np.savez_compressed(temporary, **arrays)  # type: ignore[arg-type]
    temporary.replace(task.study)


def serve(lines: TextIO, answers: TextIO) -> None:
    for line in lines:
        outcome = work(from_json(line))
        answers.write(outcome.replace("\n", " ") + "\n")
        answers.flush()
        if outcome == "interrupted":
            return


def main() -> None:
    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever is printed on the way is no answer
    try:
        serve(sys.stdin, answers)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
