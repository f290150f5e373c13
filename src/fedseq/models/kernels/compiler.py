"""C sources to a loaded library: compiled once by the system's compiler and kept in the user's cache.

The cache is executed, so a folder or library that belongs to somebody else, or that others can write to, is not used.
"""

import contextlib
import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fedseq.basics.files import cache_dir

# Multiplications and additions are joined only where the source says so. Nothing reads the flags of floating-point
# exceptions, so the compiler may compute both sides of a choice.
FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=off", "-fno-trapping-math", "-shared", "-fPIC")
_SECONDS = 600  # it takes seven; a machine may be busy


class UnavailableError(Exception):
    """The reason why there is no library, in words for a person."""


def load(name: str, sources: Sequence[Path], flags: Sequence[str] = ()) -> ctypes.CDLL:
    """The library made of these sources; headers beside them count as well."""
    if os.environ.get("FEDSEQ_KERNELS") == "0":
        raise UnavailableError("FEDSEQ_KERNELS=0 is set")
    compiler = shutil.which("cc")
    if compiler is None or not hasattr(os, "getuid"):
        raise UnavailableError("there is no C compiler (cc)")
    own_cpu = ("-march=native",) if platform.machine() in ("x86_64", "AMD64") else ()
    command = (compiler, *FLAGS, *own_cpu, *flags)
    contents = [file.read_bytes() for file in (*sources, *sorted(sources[0].parent.glob("*.h")))]
    key = hashlib.sha256(repr((contents, command, _cpu())).encode()).hexdigest()[:32]
    library = cache_dir() / f"kernels-{os.getuid()}" / f"{name}-{key}.so"
    try:
        library.parent.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            library.parent.mkdir(mode=0o700)
        _refuse_others(library.parent)
        with contextlib.suppress(OSError):  # it is missing, or damaged: it is made anew
            _refuse_others(library)
            return ctypes.CDLL(str(library))
        _compile(command, sources, library)
        return ctypes.CDLL(str(library))
    except OSError as error:
        reason = error.strerror or error
        raise UnavailableError(
            f"{library.parent} cannot be used: {reason}; set FEDSEQ_CACHE to a folder of your own"
        ) from None


def _refuse_others(path: Path) -> None:
    """Raise if somebody else owns the file or folder or can write to it; a symbolic link counts as writable."""
    state = path.lstat()
    if stat.S_ISLNK(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(None, "others may write there")


def _compile(command: Sequence[str], sources: Sequence[Path], library: Path) -> None:
    """Make the library in one step: another process that does the same at the same time replaces it by its equal."""
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        made = Path(scratch) / library.name
        try:
            subprocess.run([*command, "-o", made, *sources], check=True, capture_output=True, timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"{command[0]} took more than {_SECONDS} seconds") from None
        except subprocess.CalledProcessError as error:
            lines = error.stderr.decode(errors="replace").splitlines()
            first = next((line for line in lines if "error" in line), f"exit code {error.returncode}")
            raise UnavailableError(f"{command[0]} cannot compile them: {first.strip()}") from None
        made.chmod(0o700)
        made.replace(library)


def _cpu() -> str:
    """What -march=native depends on: a home folder may be shared by machines of different kinds."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    facts = sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
    return repr((platform.machine(), facts))
