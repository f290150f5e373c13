"""The same bits from every compiler, optimisation and vector width; a cache that is this user's alone."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fedseq.models.kernels import available, compiler, convolution

SOURCES = Path(convolution.__file__).parent
DRIVER = Path(__file__).with_name("fingerprint.c")
CPU = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""

needs_kernels = pytest.mark.skipif(available() is not None, reason=f"no fast kernels: {available()}")


@pytest.mark.slow
@needs_kernels
@pytest.mark.parametrize(("width", "optimisation"), [(4, "-O2"), (8, "-O3"), (8, "-O1"), (16, "-O2")])
def test_every_width_gives_the_same_bits(width, optimisation, tmp_path, monkeypatch):
    if {16: "avx512f", 8: "avx2"}.get(width, "") not in CPU:
        pytest.skip("this CPU has no such vectors")
    monkeypatch.setenv("FEDSEQ_CACHE", str(tmp_path))
    library = compiler.load("test", convolution._SOURCES, [f"-DWIDTH={width}", optimisation])
    assert convolution.fingerprint(convolution.declare(library)) == convolution._EXPECTED


def printed_by(compile_with: list[str], run_with: list[str], folder: Path) -> str:
    program = folder / "fingerprint"
    flags = [flag for flag in compiler.FLAGS if flag not in ("-shared", "-fPIC")]
    sources = [DRIVER, *convolution._SOURCES]
    subprocess.run([*compile_with, *flags, f"-I{SOURCES}", "-o", program, *sources, "-lm"], check=True)
    ran = subprocess.run([*run_with, program], capture_output=True, text=True, check=True)
    return ran.stdout


@pytest.mark.slow
@needs_kernels
@pytest.mark.parametrize(
    ("compile_with", "run_with"),
    [
        (["clang", "-march=native"], []),
        (["gcc", "-march=haswell"], []),
        (["aarch64-linux-gnu-gcc", "-static"], ["qemu-aarch64"]),
    ],
    ids=["clang", "AVX2", "ARM"],
)
def test_other_compilers_and_machines_give_the_same_bits(compile_with, run_with, tmp_path):
    """A program that needs no PyTorch prints a hash of all that the kernels compute."""
    for tool in (compile_with[0], *run_with):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool}")
    assert "avx2" in CPU or run_with or pytest.skip("not an x86 machine")
    here = printed_by(["cc", "-march=native"], [], tmp_path)
    assert printed_by(compile_with, run_with, tmp_path) == here


POOLING = "from fedseq.models import kernels; print(kernels.load() is not None)"  # quick to compile
CONVOLUTION = "from fedseq.models import kernels; print(kernels.available())"


def said(code: str, **environment: str) -> str:
    """By a fresh process."""
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert asked.stderr == ""
    return asked.stdout.strip()


@pytest.fixture
def home(tmp_path):
    return {"FEDSEQ_CACHE": str(tmp_path / "cache"), "HOME": str(tmp_path), "PATH": "/usr/local/bin:/usr/bin:/bin"}


def kept(tmp_path: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in (tmp_path / "cache").glob("kernels-*/*")}


@pytest.mark.slow
@needs_kernels
def test_it_is_compiled_once_and_a_damaged_library_again(home, tmp_path):
    assert said(POOLING, **home) == "True"
    ((file, made),) = kept(tmp_path).items()
    assert said(POOLING, **home) == "True"
    assert kept(tmp_path) == {file: made}
    file.write_bytes(b"damaged")
    assert said(POOLING, **home) == "True"
    assert kept(tmp_path).keys() == {file}
    assert kept(tmp_path)[file] > made


@pytest.mark.slow
@needs_kernels
def test_processes_that_compile_at_the_same_time_do_not_disturb_each_other(home, tmp_path):
    command = [sys.executable, "-c", POOLING]
    several = [subprocess.Popen(command, env=home, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate()[0].strip() for process in several] == ["True"] * 3
    assert len(kept(tmp_path)) == 1


@pytest.mark.slow
@needs_kernels
def test_a_folder_that_others_can_write_to_is_not_trusted(home, tmp_path):
    assert said(POOLING, **home) == "True"
    (file,) = kept(tmp_path)
    file.parent.chmod(0o777)
    assert said(POOLING, **home) == "False"
    assert "others may write there" in said(CONVOLUTION, **home)
    file.parent.chmod(0o700)
    moved = file.parent.rename(tmp_path / "elsewhere")
    file.parent.symlink_to(moved)
    assert said(POOLING, **home) == "False"


@pytest.mark.slow
def test_what_is_missing_is_said(home, tmp_path):
    assert said(CONVOLUTION, **{**home, "FEDSEQ_KERNELS": "0"}) == "FEDSEQ_KERNELS=0 is set"
    assert said(CONVOLUTION, **{**home, "PATH": str(tmp_path)}) == "there is no C compiler (cc)"
    assert said(POOLING, **{**home, "PATH": str(tmp_path)}) == "False"
    assert not (tmp_path / "cache").exists()
    old = tmp_path / "bin" / "cc"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'cc: error: unrecognized option -march=native' >&2\nexit 1\n")
    old.chmod(0o755)
    words = said(CONVOLUTION, **{**home, "PATH": f"{old.parent}:/usr/bin:/bin"})
    assert words == f"{old} cannot compile them: cc: error: unrecognized option -march=native"


@needs_kernels
def test_a_cache_that_cannot_be_written_is_said(home, tmp_path):
    (tmp_path / "file").touch()
    words = said(CONVOLUTION, **{**home, "FEDSEQ_CACHE": str(tmp_path / "file" / "cache")})
    assert "set FEDSEQ_CACHE to a folder of your own" in words


@needs_kernels
def test_other_numbers_than_expected_are_said(monkeypatch):
    convolution._checked.cache_clear()
    monkeypatch.setattr(convolution, "_EXPECTED", "something else")
    try:
        assert "other numbers" in (available() or "")
    finally:
        convolution._checked.cache_clear()
