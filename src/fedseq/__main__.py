"""The command `fedseq`, and `python -m fedseq`, which is the same where that is not on the PATH."""

import sys

from fedseq.basics import stopping


def main() -> int:
    """Before anything that takes time to import, signals are seen to."""
    stopping.obey()
    code = stopping.INTERRUPTED
    try:
        from fedseq.cli import main as run_command

        code = run_command()
    except KeyboardInterrupt:  # on the way out
        pass
    finally:
        stopping.leave(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
