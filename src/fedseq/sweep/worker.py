"""A worker process of a sweep, which loads torch once. Before it does, it heeds signals and the end of its parent."""

import signal
import sys

from fedseq.basics import stopping
from fedseq.basics.processes import end_with_parent


def main() -> None:
    stopping.obey()
    if not end_with_parent(int(sys.argv[1]), signal.SIGTERM):  # by which a run is saved
        return
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever is printed on the way is no answer
    try:
        import torch

        from fedseq.sweep.work import serve

        torch.set_num_threads(1)
        serve(sys.stdin, answers)
    except KeyboardInterrupt:
        sys.exit(stopping.INTERRUPTED)


if __name__ == "__main__":
    main()
