"""Writing files so that a crash leaves the old one or the new one, and nothing in between; reading only plain files.

What JSON files hold is checked by one decoder. A form is a type, None, a list of one form, a tuple of alternatives, or
names with forms; "name?" may be absent:

    {"round": int, "accuracy": (float, None), "skipped?": [dict]}

A float is finite, and an int stands for one too; no number has more than 64 bits, and true is no number.
"""

import errno
import hashlib
import json
import math
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

from fedseq.basics.errors import FedSeqError

MOST_BYTES = 2**28  # of a file that is read at once, unless it is known to be larger
Form = Any
_UNFINISHED = ".fedseq-unfinished"  # ends names that nobody else gives to a file


def write_atomically(path: Path, content: bytes) -> None:
    """The file is either the old one or the new one, also after a power cut."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_UNFINISHED}")  # that nobody can put there first
    try:
        with open_for_writing(temporary, os.O_EXCL) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """What a killed process of ours was writing right here; to be called by the only one who writes in this folder."""
    for path in folder.glob(f".*.*{_UNFINISHED}"):
        path.unlink(missing_ok=True)


def fits(value: Any, form: Form) -> bool:
    if isinstance(form, tuple):
        return any(fits(value, one) for one in form)
    if isinstance(form, list):
        return isinstance(value, list) and all(fits(one, form[0]) for one in value)
    if isinstance(form, dict):
        return isinstance(value, dict) and all(
            fits(value[key], part) if (key := name.removesuffix("?")) in value else name.endswith("?")
            for name, part in form.items()
        )
    if form in (int, float) and type(value) is int:
        return -(2**63) <= value < 2**63
    return value is None if form is None else type(value) is form and (form is not float or math.isfinite(value))


def decode(text: bytes | str, form: Form) -> Any:
    """What JSON text holds; a ValueError where it is none, or has another form."""
    try:
        value = json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not fits(value, form):
        wrong = [name for name in form if not fits(value, {name: form[name]})] if isinstance(form, dict) else []
        named = " and ".join(name.removesuffix("?") for name in wrong) if isinstance(value, dict) else "its whole"
        raise ValueError(f"{named or 'a value'} is missing or of another type")
    return value


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number")


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, (json.dumps(value, indent=1) + "\n").encode())


def read_json(path: Path, form: Form = dict) -> dict[str, Any] | None:
    """What a JSON file of ours holds; None where there is none."""
    try:
        return cast(dict[str, Any], decode(read_plain(path), form))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise FedSeqError(f"{path} is damaged: {error}.") from None


def append_line(path: Path, record: Mapping[str, Any]) -> bytes:
    """Returns what was written."""
    line = (json.dumps(record) + "\n").encode()
    with open_for_writing(path, os.O_APPEND) as file:
        file.write(line)
    return line


def cut(path: Path, length: int) -> None:
    """Leave at most so many bytes of the file, if it exists."""
    if path.exists() and path.stat().st_size > length:
        with open_for_writing(path, 0) as file:
            file.truncate(length)


def open_for_writing(path: Path, how: int) -> BinaryIO:
    """Never through a symbolic link, which someone else may have put there."""
    no_links = getattr(os, "O_NOFOLLOW", 0)  # Windows has none, and hardly any links
    return _open_plain(path, os.O_WRONLY | os.O_CREAT | no_links | how, "wb")


def open_plain(path: Path) -> BinaryIO:
    """For reading. A pipe in a file's place would keep us waiting, and a device might never end: both are OSErrors."""
    return _open_plain(path, os.O_RDONLY, "rb")


def read_plain(path: Path, limit: int | None = MOST_BYTES) -> bytes:
    with open_plain(path) as file:
        refuse_longer(path, file, limit)
        return file.read()


def refuse_longer(path: Path, file: BinaryIO, limit: int | None) -> None:
    """Before it is read: a file from elsewhere may be of any length, and take no room on the disk."""
    length = os.fstat(file.fileno()).st_size
    if limit is not None and length > limit:
        raise FedSeqError(f"{path} has {length / 1e6:,.0f} MB; at most {limit / 1e6:,.0f} MB of it are read.")


def digest(path: Path, limit: int | None = None) -> str | None:
    """The SHA-256 of a file; None where there is none."""
    return hashed(path, None, limit).hexdigest() if path.is_file() else None


def hashed(path: Path, length: int | None = None, limit: int | None = None) -> "hashlib._Hash":
    """The SHA-256 of a file or of its first bytes, to which more can be added; of fewer if there are not as many."""
    found = hashlib.sha256()
    if path.exists():
        with open_plain(path) as file:
            refuse_longer(path, file, limit)
            left = os.fstat(file.fileno()).st_size if length is None else length
            while left > 0 and (block := file.read(min(left, 2**20))):
                found.update(block)
                left -= len(block)
    return found


def write_sums(path: Path, sums: Mapping[str, str | None]) -> None:
    """Checksums by name, for `sha256sum -c`; files that are not there have none."""
    write_atomically(path, "".join(f"{found}  {name}\n" for name, found in sums.items() if found).encode())


def read_sums(path: Path) -> dict[str, str] | None:
    try:
        lines = read_plain(path, 2**20).decode("utf-8", "replace").splitlines()
    except OSError:
        return None
    return {name: found for found, _, name in (line.partition("  ") for line in lines)}


def _open_plain(path: Path, how: int, mode: str) -> BinaryIO:
    binary, at_once = getattr(os, "O_BINARY", 0), getattr(os, "O_NONBLOCK", 0)  # of Windows, of Unix
    descriptor = os.open(path, how | binary | at_once, 0o666)
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "it is not a plain file", str(path))
    return cast(BinaryIO, os.fdopen(descriptor, mode))


def cache_dir() -> Path:
    """Where decoded data and compiled kernels are kept for the next time; FEDSEQ_CACHE names another place."""
    if chosen := os.environ.get("FEDSEQ_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fedseq"
