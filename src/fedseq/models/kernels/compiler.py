"""C sources to a loaded library: compiled once by the system's compiler and kept in the user's cache.

What lies in the cache is executed, so it must be this user's alone: the folder and the library are looked at after they
were opened, when nobody can exchange them any more, and the library's checksum is part of its name.
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
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedseq.basics.files import cache_dir

# Multiplications and additions are joined where the source says so. Nobody looks at the flags of floating-point
# exceptions; the compiler may then compute both sides of a choice.
FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=off", "-fno-trapping-math", "-shared", "-fPIC")
_SECONDS = 600  # it takes seven; a machine may be busy
_TRIES = 3  # another process that saw the damaged library may remove the new one, which has its name


class UnavailableError(Exception):
    """Why there is no library, in words for a person."""


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
    folder = cache_dir() / f"kernels-{os.getuid()}"
    try:
        with _opened(folder) as inside:
            library = _kept(inside, f"{name}-{key}-")
            for _ in range(_TRIES):
                if library is not None:
                    break
                content = _compiled(command, sources)
                _keep(inside, f"{name}-{key}-{hashlib.sha256(content).hexdigest()}.so", content)
                library = _kept(inside, f"{name}-{key}-")
    except OSError as error:
        reason = error.strerror or error
        raise UnavailableError(f"{folder} cannot be used: {reason}; set FEDSEQ_CACHE to a folder of your own") from None
    if library is None:
        raise UnavailableError(f"{folder} does not keep what is written to it")
    return library


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """The folder, which is made if it is missing, as a file descriptor."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _check_owner(os.fstat(inside))
        yield inside
    finally:
        os.close(inside)


def _check_owner(state: os.stat_result) -> None:
    if state.st_uid != os.getuid() or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(None, "others may write there")


def _kept(inside: int, prefix: str) -> ctypes.CDLL | None:
    """The library whose name begins like this, if it is whole; what is damaged is removed."""
    for name in sorted(os.listdir(inside)):
        if not name.startswith(prefix):
            continue
        with contextlib.suppress(FileNotFoundError):  # another process was faster to remove it
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=inside)
            if _is_whole(file, name.removeprefix(prefix).removesuffix(".so")):
                # Its descriptor stays open: the loader knows libraries by their path, which must not come again.
                by_descriptor = Path(f"/proc/self/fd/{file}")
                path = by_descriptor if by_descriptor.exists() else cache_dir() / f"kernels-{os.getuid()}" / name
                return ctypes.CDLL(str(path))
            os.close(file)
            os.unlink(name, dir_fd=inside)
    return None


def _is_whole(file: int, checksum: str) -> bool:
    """Looked at through its descriptor, behind which nobody can exchange it."""
    _check_owner(os.fstat(file))
    with os.fdopen(file, "rb", closefd=False) as opened:
        return hashlib.sha256(opened.read()).hexdigest() == checksum


def _keep(inside: int, name: str, content: bytes) -> None:
    """Whole or not at all, whoever else does the same at the same time."""
    draft = f".{name}.{os.getpid()}.tmp"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft, dir_fd=inside)
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=inside)
    with os.fdopen(file, "wb") as opened:
        opened.write(content)
    os.replace(draft, name, src_dir_fd=inside, dst_dir_fd=inside)


def _compiled(command: Sequence[str], sources: Sequence[Path]) -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "library.so"
        try:
            subprocess.run([*command, "-o", made, *sources], check=True, capture_output=True, timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"{command[0]} took more than {_SECONDS} seconds") from None
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode(errors="replace").splitlines()
            first = next((line for line in said if "error" in line), f"exit code {error.returncode}")
            raise UnavailableError(f"{command[0]} cannot compile them: {first.strip()}") from None
        return made.read_bytes()


def _cpu() -> str:
    """What -march=native depends on: a home folder may be shared by machines of different kinds."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    facts = sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
    return repr((platform.machine(), facts))
