"""Registers public keys with a federation's SuperLink: `flwr supernode register` for many keys in one process."""

import sys
from typing import Any

from fedseq.flower.folder import NAME

KNOWN = "already in use"


def main(keys: list[str]) -> None:
    import click
    from flwr.cli.app import app

    command: Any = app
    for key in keys:
        try:
            command(["supernode", "register", key, NAME], standalone_mode=False)
        except click.ClickException as error:
            if KNOWN not in error.format_message():  # registrations outlive the SuperLink
                sys.exit(error.format_message())


if __name__ == "__main__":
    main(sys.argv[1:])
