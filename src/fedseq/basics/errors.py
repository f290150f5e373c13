"""The one exception for problems a user can fix: what is wrong, why, and how to fix it."""

import errno
from collections.abc import Iterable

MANY = 20
MOST_HINTS = 3


class FedSeqError(Exception):
    """A mistake in the input or the surroundings. The command line prints it without a traceback and exits with 2."""


def unknown(kind: str, name: object, valid: Iterable[str], see: str = "") -> FedSeqError:
    """The error for a name that is not in a table, with the nearest valid one. `see` is where a long table is shown."""
    import difflib  # takes longer than all else that a command imports before it heeds signals

    choices = sorted(valid)
    bare = {_bare(choice): choice for choice in choices}
    near = difflib.get_close_matches(_bare(str(name)), bare, n=1, cutoff=0.6)
    near = near or [choice for choice in bare if _bare(str(name)) in choice.split("-")][:MOST_HINTS]  # a part of it
    meant = " or ".join(f"'{bare[choice]}'" for choice in near)
    hint = f" Did you mean {meant}?" if near else ""
    # A list that nobody would read is left to --help, unless nothing is near.
    listed = f" Valid: {', '.join(choices)}." if len(choices) <= MANY or not (near or see) else ""
    asked = f" See: {see}" if see and not near and not listed else ""
    return FedSeqError(f"unknown {kind} '{name}'.{hint}{listed}{asked}")


def _bare(name: str) -> str:
    """What is compared: not the dashes, which all options have in common."""
    return name.lower().lstrip("-")


def is_out_of_memory(error: BaseException) -> bool:
    """Python's own error, the system's, or PyTorch's, which on CPUs has no type of its own."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, ImportError):  # of a library, as the loader says it
        return "failed to map segment" in str(error)
    if isinstance(error, SystemError):  # of a library that had no room for its own error
        return "without exception set" in str(error)
    by_torch = isinstance(error, RuntimeError) and any(
        words in str(error) for words in ("allocate memory", "out of memory")
    )
    return isinstance(error, MemoryError) or by_torch


def harmless(text: str) -> str:
    """Without what would steer a terminal: names and texts out of somebody else's files may hold anything."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


def in_short(error: BaseException) -> str:
    """What a user's own code raised, in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}." if lines else f"{type(error).__name__}."
