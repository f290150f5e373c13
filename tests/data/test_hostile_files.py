"""Small files that ask for hours or gigabytes: one sentence each."""

import os
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fedseq.basics.errors import FedSeqError
from fedseq.data import load_dataset
from fedseq.data.pictures import open_image


def test_a_program_in_the_place_of_a_picture_is_not_opened(tmp_path: Path) -> None:
    """Pillow would hand EPS to Ghostscript."""
    picture = tmp_path / "a.png"
    picture.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n")
    with pytest.raises(FedSeqError, match=r"not a readable picture.*PNG, JPEG"), open_image(picture, "a.png"):
        pass


@pytest.mark.parametrize("form", ["PNG", "GIF", "WEBP", "BMP", "JPEG"])
def test_the_usual_formats_are_read(form: str, tmp_path: Path) -> None:
    Image.new("RGB", (8, 6)).save(tmp_path / "a", form)
    with open_image(tmp_path / "a", "a") as image:
        assert image.size == (8, 6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("side", [5000, 11_000])  # the second is one that Pillow warns of
def test_a_huge_picture_is_refused_by_its_header(side: int, tmp_path: Path) -> None:
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", len(head)) + b"IHDR" + head + struct.pack(">I", _crc(b"IHDR" + head))
    empty = struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", _crc(b"IDAT"))
    for split in ("train", "test"):
        (tmp_path / split / "c").mkdir(parents=True)
        (tmp_path / split / "c" / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk + empty)
    with pytest.raises(FedSeqError, match=rf"a\.png: not a readable picture \({side}x{side} pixels, and no more"):
        load_dataset(f"folder:{tmp_path}")


def _crc(content: bytes) -> int:
    import zlib

    return zlib.crc32(content)


@pytest.mark.parametrize("name", ["data.npz", "train.parquet", "data_batch_1"])
def test_a_pipe_in_the_place_of_data_keeps_nobody_waiting(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    if name == "data_batch_1":
        (tmp_path / "test_batch").write_bytes(b"")
    with pytest.raises(FedSeqError, match=rf"lacks {name}|{name}.*not a plain file"):
        load_dataset(f"npz:{tmp_path / name}") if name == "data.npz" else load_dataset("cifar10", tmp_path)


def test_an_npz_that_claims_terabytes(tmp_path: Path) -> None:
    import io
    import zipfile

    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": (2**45,)})
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        for key in ("x_train", "y_train", "x_test", "y_test"):
            archive.writestr(f"{key}.npy", head.getvalue())
    with pytest.raises(FedSeqError, match="cannot be read"):
        load_dataset(f"npz:{tmp_path / 'data.npz'}")


def test_an_npz_of_zeros_that_would_fill_the_memory(tmp_path: Path) -> None:
    import zipfile

    blank = bytes(2**20)
    with zipfile.ZipFile(tmp_path / "data.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for key in ("x", "y"):
            with archive.open(f"{key}.npy", "w") as file:
                for _ in range(300):
                    file.write(blank)
    assert (tmp_path / "data.npz").stat().st_size < 10**6
    with pytest.raises(FedSeqError, match=r"would grow from 0\.\d+ MB to 0\.629 GB"):
        load_dataset(f"npz:{tmp_path / 'data.npz'}")


def test_a_parquet_table_of_one_value_that_would_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    block = pa.table({"x": np.zeros(7_000_000), "label": np.zeros(7_000_000, np.int64)})
    with pq.ParquetWriter(path, block.schema) as writer:
        for _ in range(5):
            writer.write_table(block)
    with pytest.raises(FedSeqError, match=r"would grow from 0\.\d+ MB to 0\.56 GB"):  # 70 million values
        load_dataset(f"parquet:{path}")
