"""Training that went wrong, in words: what happened where, which model is kept, what to change."""

from collections.abc import Sequence

from fedseq.basics.errors import FedSeqError
from fedseq.runs.snapshots import Snapshot
from fedseq.training.gate import HOPELESS
from fedseq.training.jobs import Job, Result


def divergence(jobs: Sequence[Job], results: Sequence[Result], snapshot: Snapshot) -> FedSeqError | None:
    round_ = snapshot.round + 1
    for result in results:
        if result.diverged is not None:
            unit = next(job.unit for job in jobs if job.index == result.index)
            return FedSeqError(
                f"training diverged in round {round_}, unit {unit}, client {result.diverged}: loss or weights are no "
                f"longer finite. The model of round {round_ - 1} is kept. Lower --lr, or set --max-grad-norm "
                "or --update-check size."
            )
    if results and not any(result.hops for result in results) and snapshot.gate.rejected_rounds + 1 >= HOPELESS:
        reasons = sorted({hop.reason for result in results for hop in result.rejected})
        return FedSeqError(
            f"in {HOPELESS} rounds in a row, up to round {round_}, no client's update was accepted "
            f"({'; '.join(reasons[:3])}). The last model is kept. Where training diverges, lower --lr or raise "
            "--update-check-factor."
        )
    return None


def server_divergence(round_: int) -> FedSeqError:
    return FedSeqError(
        f"training diverged in round {round_}: the clients' models are finite, and the server's step made of them is "
        f"not. The model of round {round_ - 1} is kept. Lower --server-lr or --lr."
    )


def output_divergence(round_: int, undefined: int) -> FedSeqError:
    return FedSeqError(
        f"training diverged in round {round_}: for {undefined} of the test examples the new model's outputs are not "
        f"numbers (NaN). The model of round {round_ - 1} is kept. Lower --lr or --server-lr, or set --max-grad-norm."
    )
