"""Hundreds of generated data files, read as pandas and NumPy read them: examples, classes, clients and values."""

import csv
import random
import string
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedseq.data import load_dataset
from fedseq.data.dataset import Dataset, Wanted, silent

pd = pytest.importorskip("pandas")

FILES_OF_EACH_KIND = 100
WORDS = [
    "yes",
    "no",
    "São Paulo",
    "a,b",
    'say "hi"',
    "x;y",
    "two\nlines",
    "007",
    "7",
    "NA",
    "nan",
    "null",
    "-1",
    "1e3x",
]
NAMES = ["age", "a, b", "dose;mg", "Größe", 'say "x"']


def _table(dice: random.Random) -> Any:
    """Columns of numbers, a class and a client, in any order, with names that need quotes."""
    rows = dice.randint(5, 60)
    words = dice.random() < 0.5
    classes = dice.sample(WORDS, 3) if words else dice.sample(range(-5, 1000), 3)
    columns: dict[str, Any] = {
        "label": [dice.choice(classes) for _ in range(rows)],
        "who": [dice.choice(["ann", "bob", "NA", "1", "01"] if words else [3, 10, 2]) for _ in range(rows)],
    }
    for number in range(dice.randint(1, 5)):
        name = f"{dice.choice(NAMES)} {number}"
        draws = [dice.randint(-50, 50), dice.gauss(0, 3), 1_700_000_000 + dice.randint(0, 10**6), dice.random() * 1e-30]
        kind, noise = dice.randrange(4), [dice.randint(0, 999) for _ in range(rows)]
        columns[name] = [draws[kind] * (1 + one / 1000) if kind % 2 else draws[kind] + one for one in noise]
    order = list(columns)
    dice.shuffle(order)
    return pd.DataFrame({name: columns[name] for name in order})


def _same(dataset: Dataset, table: Any) -> None:
    features = [name for name in table.columns if name not in ("label", "who")]
    assert len(dataset.y_train) == len(table)
    assert dataset.features == tuple(features)
    np.testing.assert_array_equal(dataset.x_train, table[features].to_numpy(np.float64))
    assert [dataset.class_names[label] for label in dataset.y_train] == [str(value).strip() for value in table["label"]]
    assert [str(one) for one in dataset.columns["who"].train] == [str(value) for value in table["who"]]


def _read(name: str, *columns: str) -> Dataset:
    return load_dataset(name, None, silent, Wanted(columns))


@pytest.mark.slow
def test_csv_files_are_read_as_pandas_wrote_them(tmp_path: Path, counts: "Counter[str]") -> None:
    dice = random.Random(1)
    for number in range(FILES_OF_EACH_KIND):
        table, path = _table(dice), tmp_path / f"{number}.csv"
        separator, ending = dice.choice(",;\t"), dice.choice(["\n", "\r\n"])
        quoting = csv.QUOTE_NONNUMERIC  # so that NA is a word
        bom = dice.choice(["utf-8", "utf-8-sig"])
        table.to_csv(path, index=False, sep=separator, quoting=quoting, lineterminator=ending, encoding=bom)
        expected = pd.read_csv(path, sep=separator, keep_default_na=False, dtype={"label": str, "who": str})
        assert expected["label"].tolist() == [str(value) for value in table["label"]]
        _same(_read(f"csv:{path}", "who"), table)
        counts["csv files"] += 1


@pytest.mark.slow
def test_parquet_files_in_any_number_of_parts(tmp_path: Path, counts: "Counter[str]") -> None:
    dice = random.Random(2)
    for number in range(FILES_OF_EACH_KIND):
        table, folder = _table(dice), tmp_path / str(number)
        folder.mkdir()
        cuts = sorted(dice.sample(range(1, len(table)), dice.randint(0, 2)))
        for part, (start, end) in enumerate(zip([0, *cuts], [*cuts, len(table)], strict=True)):
            table.iloc[start:end].to_parquet(folder / f"part-{part}.parquet", index=False)
        _same(_read(f"parquet:{folder}/part-*.parquet", "who"), table)
        counts["parquet tables"] += 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*no example has label")
@pytest.mark.filterwarnings("ignore:.*is in the test set alone")
def test_arrays_of_every_type(tmp_path: Path, counts: "Counter[str]") -> None:
    rng = np.random.default_rng(3)
    for number in range(FILES_OF_EACH_KIND):
        count, path = int(rng.integers(8, 40)), tmp_path / f"{number}.npz"
        shape = [(5,), (3, 7), (6, 6), (1, 6, 6), (3, 6, 6)][number % 5]
        pictures = len(shape) > 1 and number % 5 != 1
        x = rng.integers(0, 256, (count, *shape)).astype(np.uint8) if pictures else rng.normal(size=(count, *shape))
        x = x if pictures else x.astype([np.float16, np.float32, np.float64][number % 3])
        y = rng.integers(0, 4, count).astype([np.int8, np.uint8, np.int32, np.int64, np.uint64][number // 5 % 5])
        who = rng.choice(["ann", "bob"], count)
        if number % 2:
            np.savez(path, x=x, y=y, who=who)
            dataset = _read(f"npz:{path}", "who")
            parts: Any = (dataset.x_train,), (dataset.y_train,), (dataset.columns["who"].train,)
        else:
            half, arrays = count // 2, {"x": x, "y": y, "who": who}
            halves: dict[str, Any] = {f"{key}_train": values[:half] for key, values in arrays.items()}
            halves |= {f"{key}_test": values[half:] for key, values in arrays.items()}
            np.savez_compressed(path, **halves)
            dataset = _read(f"npz:{path}", "who")
            column = dataset.columns["who"]
            parts = (dataset.x_train, dataset.x_test), (dataset.y_train, dataset.y_test), (column.train, column.test)
        expected = x[:, None] if pictures and x.ndim == 3 else x if pictures else x.astype(np.float32)
        for found, wanted in zip(parts, (expected, y, who), strict=True):
            np.testing.assert_array_equal(np.concatenate(found), wanted)
        assert dataset.x_train.dtype == (np.uint8 if pictures else np.float32)
        counts["arrays"] += 1


@pytest.mark.slow
def test_folders_of_pictures(tmp_path: Path, counts: "Counter[str]", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSEQ_CACHE", str(tmp_path / "cache"))
    dice, rng = random.Random(4), np.random.default_rng(4)
    for number in range(FILES_OF_EACH_KIND):
        root, grey, by_client = tmp_path / str(number), dice.random() < 0.5, dice.random() < 0.5
        expected: Counter[tuple[bytes, str, str]] = Counter()
        names = ["".join(dice.choices(string.ascii_letters, k=6)) for _ in range(3)]
        for client in ("ann", "bob") if by_client else ("",):
            for label in names:
                place = root / "train" / client / label
                place.mkdir(parents=True)
                for picture in range(dice.randint(1, 3)):
                    pixels = rng.integers(0, 256, (5, 4) if grey else (5, 4, 3)).astype(np.uint8)
                    Image.fromarray(pixels).save(place / f"{picture}.{dice.choice(['png', 'bmp'])}")
                    channels = pixels[None] if grey else pixels.transpose(2, 0, 1)
                    expected[channels.tobytes(), label, client] += 1
        if not by_client:
            (root / "test" / names[0]).mkdir(parents=True)
            Image.fromarray(np.zeros((5, 4) if grey else (5, 4, 3), np.uint8)).save(root / "test" / names[0] / "a.png")
        dataset = _read(f"folder:{root}", *(["folder"] if by_client else []))
        owners = dataset.columns["folder"].train if by_client else [""] * len(dataset.y_train)
        found = zip(dataset.x_train, dataset.y_train, owners, strict=True)
        assert Counter((x.tobytes(), dataset.class_names[y], str(owner)) for x, y, owner in found) == expected
        counts["folders"] += 1
