"""Clients that exist: every source gives back what was stored, whoever holds it, and bad input gets one sentence."""

from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedseq.basics.errors import FedSeqError
from fedseq.data.columns import column_values
from fedseq.data.dataset import Dataset
from fedseq.options.resolve import resolve
from fedseq.rounds.prepare import deal, read_dataset
from fedseq.training.reporter import QUIET

from .builders import encode

PATIENTS = ["ann", "bob", "ann", "cyd", "bob", "ann", "dan", "dan", "cyd", "cyd"]
AGES = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 100.0]
ILL = ["no", "yes", "yes", "no", "no", "yes", "no", "yes", "yes", "no"]


def _csv(path: Path, header: str = "patient,age,ill", rows: list[str] | None = None) -> str:
    lines = rows if rows is not None else [f"{p},{a},{i}" for p, a, i in zip(PATIENTS, AGES, ILL, strict=True)]
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return f"csv:{path}"


def _read(**options: Any) -> tuple[Dataset, list[np.ndarray]]:
    config = resolve(options)
    dataset = read_dataset(config, QUIET)
    return dataset, deal(config, dataset)


def _rows(dataset: Dataset) -> Counter[tuple[str, float, str]]:
    """Every example with its client, whether it is trained on or tested with."""
    owners = dataset.owners
    assert owners is not None
    both = ((owners.train, dataset.x_train, dataset.y_train), (owners.test, dataset.x_test, dataset.y_test))
    return Counter(
        (owners.names[owner], float(x.flat[0]), dataset.class_names[label])
        for whose, inputs, labels in both
        for owner, x, label in zip(whose, inputs, labels, strict=True)
    )


STORED = Counter(zip(PATIENTS, AGES, ILL, strict=True))


@pytest.mark.parametrize("holdout_by", ["examples", "clients"])
def test_a_csv_file_round_trip(tmp_path: Path, holdout_by: str) -> None:
    options = {"clients_by": "patient", "label_column": "ill", "holdout": 0.5, "holdout_by": holdout_by}
    dataset, clients = _read(dataset=_csv(tmp_path / "visits.csv"), **options)
    assert _rows(dataset) == STORED
    assert sum(map(len, clients)) == len(dataset.y_train)
    owners = dataset.owners
    assert owners is not None
    for number, indices in enumerate(clients):
        assert set(owners.train[indices]) == {number}
    if holdout_by == "clients":  # half of four
        assert (len(clients), set(owners.test)) == (2, {2, 3})
    else:  # halves of 3, 2, 3 and 2, rounded to even: 2, 1, 2 and 1
        assert sorted(Counter(owners.test.tolist()).items()) == [(0, 2), (1, 1), (2, 2), (3, 1)]


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        (["-3", "7"], [-3, 7]),
        (["007", "7"], ["007", "7"]),
        (["--1", "1"], ["--1", "1"]),
        (["12345678901234567890", "1"], ["12345678901234567890", "1"]),
        (np.array([1.0, 2.0]), [1, 2]),
        (np.array([1e19, 2e19]), ["1e+19", "2e+19"]),
        (np.array([2**63, 2**63 + 1], dtype=np.uint64), ["9223372036854775808", "9223372036854775809"]),
    ],
)
def test_clients_are_told_apart_by_what_they_are_called(values: Any, kept: list[int | str]) -> None:
    assert column_values("a.csv", "hospital", values).tolist() == kept


def test_a_parquet_table_in_two_files_round_trip(tmp_path: Path) -> None:
    for part in (slice(0, 6), slice(6, 10)):
        table = pa.table({"ill": ILL[part], "age": AGES[part], "patient": PATIENTS[part]})
        pq.write_table(table, tmp_path / f"visits-{part.start}.parquet")
    dataset, clients = _read(dataset=f"parquet:{tmp_path}/visits-*.parquet", clients_by="patient", label_column="ill")
    assert (_rows(dataset), len(clients)) == (STORED, 4)


@pytest.mark.parametrize("one_set", [True, False])
def test_arrays_round_trip(tmp_path: Path, one_set: bool) -> None:
    x, y, who = np.array(AGES)[:, None], np.array([int(i == "yes") for i in ILL]), np.array(PATIENTS)
    arrays: dict[str, Any] = {"x": x, "y": y, "client": who}
    if not one_set:  # cyd and dan only to test with
        later = np.isin(who, ["cyd", "dan"])
        arrays = {
            f"{k}_{part}": v[mask] for k, v in arrays.items() for part, mask in (("train", ~later), ("test", later))
        }
    np.savez(tmp_path / "a.npz", **arrays)
    dataset, clients = _read(
        dataset=f"npz:{tmp_path}/a.npz", clients_by="client", **({"holdout": 0.3} if one_set else {})
    )
    assert _rows(dataset) == Counter((p, a, str(int(i == "yes"))) for p, a, i in zip(PATIENTS, AGES, ILL, strict=True))
    assert len(clients) == (4 if one_set else 2)
    assert dataset.owners is not None
    assert dataset.owners.names == ("ann", "bob", "cyd", "dan")


def test_folders_round_trip(tmp_path: Path) -> None:
    for number, (patient, ill) in enumerate(zip(PATIENTS, ILL, strict=True)):
        place = tmp_path / "train" / patient / ill
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}.png").write_bytes(encode(np.full((1, 5, 5), 20 * number, np.uint8)))
    dataset, _ = _read(dataset=f"folder:{tmp_path}", clients_by="folder", holdout=0.4)
    assert _rows(dataset) == Counter((p, 20.0 * n, i) for n, (p, i) in enumerate(zip(PATIENTS, ILL, strict=True)))
    with pytest.raises(FedSeqError, match="Valid: folder"):
        _read(dataset=f"folder:{tmp_path}", clients_by="patient", holdout=0.4)


def test_pictures_in_parquet_round_trip(tmp_path: Path) -> None:
    pictures = [{"bytes": encode(np.full((1, 4, 4), 9 * n, np.uint8)), "path": None} for n in range(10)]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    labels = [int(i == "yes") for i in ILL]
    table = pa.table({"image": pa.array(pictures, kind), "label": labels, "hospital": [3, 3, 3, 3, 3, 1, 1, 1, 1, 1]})
    pq.write_table(table, tmp_path / "p.parquet")
    dataset, _ = _read(dataset=f"parquet:{tmp_path}/p.parquet", clients_by="hospital", holdout=0.4)
    hospitals = ["3"] * 5 + ["1"] * 5
    expected = Counter((h, 9.0 * n, str(c)) for n, (h, c) in enumerate(zip(hospitals, labels, strict=True)))
    assert _rows(dataset) == expected
    assert dataset.owners is not None
    assert dataset.owners.names == ("1", "3")


def test_numbers_are_sorted_as_numbers_and_other_names_as_words(tmp_path: Path) -> None:
    rows = [f"{client},{age},{age % 2}" for client, age in ((10, 1), (9, 2), (10, 3), (9, 4), (10, 5), (9, 6))]
    dataset, _ = _read(dataset=_csv(tmp_path / "a.csv", "ward,age,label", rows), clients_by="ward", holdout=0.4)
    assert dataset.owners is not None
    assert dataset.owners.names == ("9", "10")
    words = [row.replace("9,", "09,", 1) if row.startswith("9") else row for row in rows]
    dataset, _ = _read(dataset=_csv(tmp_path / "b.csv", "ward,age,label", words), clients_by="ward", holdout=0.4)
    assert dataset.owners is not None
    assert dataset.owners.names == ("09", "10")


def test_features_are_scaled_by_those_that_are_trained_on(tmp_path: Path) -> None:
    """Trained on 1 and 3, of mean 2 and standard deviation 1, the test example 7 becomes 5; a constant becomes 0."""
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 1)), y=[0, 1, 0])
    rows = ["a,1,4,0", "a,3,4,1", "b,7,4,0"]
    table = _csv(tmp_path / "a.csv", "who,age,one,label", rows)
    for seed in range(20):
        options = {"clients_by": "who", "holdout": 0.4, "holdout_by": "clients", "seed": seed}
        try:
            dataset, _ = _read(dataset=table, **options)
        except FedSeqError:  # a is held out, and b knows one class alone
            continue
        break
    assert dataset.scaled(dataset.x_test).tolist() == [[5.0, 0.0]]
    assert dataset.scaled(dataset.x_train).tolist() == [[-1.0, 0.0], [1.0, 0.0]]


def _column(tmp_path: Path, form: str, values: Any) -> Dataset:
    """A table of one feature, read with a fifth held out."""
    labels = [n % 2 for n in range(len(values))]
    if form == "csv":
        rows = [f"{value},{label}" for value, label in zip(values, labels, strict=True)]
        return _read(dataset=_csv(tmp_path / "a.csv", "age,label", rows), holdout=0.2, num_clients=2)[0]
    pq.write_table(pa.table({"age": values, "label": labels}), tmp_path / "a.parquet")
    return _read(dataset=f"parquet:{tmp_path}/a.parquet", holdout=0.2, num_clients=2)[0]


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize(("start", "step"), [(1_700_000_000, 60), (1_700_000_000_000, 1), (123_456_789, 1), (1e8, 0.1)])
def test_where_a_column_begins_does_not_matter(tmp_path: Path, form: str, start: float, step: float) -> None:
    """Unix times, long numbers, prices: what is scaled to mean 0 and deviation 1 is the same for any start."""
    numbers = np.random.default_rng(0).permutation(100)
    from_zero, far_away = (
        _column(tmp_path, form, [first + step * n for n in numbers.tolist()]) for first in (0, start)
    )
    for near, far in ((from_zero.x_train, far_away.x_train), (from_zero.x_test, far_away.x_test)):
        np.testing.assert_allclose(far_away.scaled(far), from_zero.scaled(near), atol=1e-6)


DAY = datetime(2024, 3, 1, 12, 30, 5, 250_000)
NOON = 1_709_296_205.25  # by `date -u -d '2024-03-01 12:30:05.25' +%s.%N`


@pytest.mark.parametrize(
    ("value", "kind", "seconds"),
    [
        (DAY, pa.timestamp("ns"), NOON),
        (DAY, pa.timestamp("us"), NOON),
        (DAY, pa.timestamp("ms", "Europe/Berlin"), NOON),
        (DAY.date(), pa.date32(), 1_709_251_200),
        (DAY.date(), pa.date64(), 1_709_251_200),
        (datetime(3000, 1, 1), pa.timestamp("us"), 32_503_680_000),
        (timedelta(hours=2, milliseconds=5), pa.duration("ms"), 7200.005),
        (timedelta(days=-1), pa.duration("ns"), -86_400),
    ],
)
def test_times_are_read_as_seconds_and_missing_ones_refused(
    tmp_path: Path, value: Any, kind: Any, seconds: float
) -> None:
    later = value + timedelta(days=3)
    table = pa.table({"when": pa.array([value, later] * 2, kind), "dose": [1, 2, 3, 4], "label": [0, 0, 1, 1]})
    pq.write_table(table, tmp_path / "a.parquet")
    source = f"parquet:{tmp_path}/a.parquet"
    dataset, _ = _read(dataset=source, holdout=0.5, num_clients=1)
    assert sorted({*dataset.x_train[:, 0], *dataset.x_test[:, 0]}) == [seconds, seconds + 3 * 86_400]
    assert len(set(column_values("a.parquet", "when", table["when"].to_numpy()))) == 2
    pq.write_table(table.set_column(0, "when", pa.array([value, None] * 2, kind)), tmp_path / "a.parquet")
    with pytest.raises(FedSeqError, match="column 'when' has 'NaT' for example 2, and features must be finite"):
        _read(dataset=source, holdout=0.5, num_clients=1)
    with pytest.raises(FedSeqError, match="example 2 has no when"):
        _read(dataset=source, clients_by="when", holdout=0.5)


def test_a_missing_category_is_refused(tmp_path: Path) -> None:
    """Of a column that stores its words by number, as those of pandas' categories do."""
    words = pa.array(["b", "a", None, "b"]).dictionary_encode()
    pq.write_table(pa.table({"who": words, "age": AGES[:4], "label": [0, 0, 1, 1]}), tmp_path / "a.parquet")
    with pytest.raises(FedSeqError, match="example 3 has no who"):
        _read(dataset=f"parquet:{tmp_path}/a.parquet", clients_by="who", holdout=0.5)


def test_a_time_of_day_is_refused_by_name(tmp_path: Path) -> None:
    times = pa.array([DAY.time()] * 2, pa.time64("us"))
    pq.write_table(pa.table({"when": times, "label": [0, 1]}), tmp_path / "a.parquet")
    with pytest.raises(FedSeqError, match=r"column 'when' has '12:30:05\.250000' for example 1"):
        _read(dataset=f"parquet:{tmp_path}/a.parquet", holdout=0.5, num_clients=1)


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("values", "left"),
    [
        ([2**60 + n for n in range(100)], 1),  # of 256 neighbours one is a number in double precision
        ([*range(79), 10**15], r"\d"),  # beside such a range all others are zero
        ([n * 1e-300 for n in range(100)], 1),
    ],
)
def test_values_that_become_one_are_said_by_their_column(tmp_path: Path, form: str, values: Any, left: Any) -> None:
    with pytest.warns(UserWarning, match=rf"'age' has \d+ different values, and the model can tell only {left} of"):
        _column(tmp_path, form, values)


def test_ordinary_columns_are_read_without_a_word(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """Ten thousand random numbers, of which few become one in single precision; a constant that has no exact mean."""
    _column(tmp_path, "csv", np.random.default_rng(0).random(10_000).tolist())
    constant = _column(tmp_path, "csv", [0.1] * 50)
    assert not constant.scaled(constant.x_train).any()
    assert not [str(one.message) for one in recwarn.list]


def test_people_are_held_out_whole_whoever_the_clients_are(tmp_path: Path) -> None:
    rows = [
        f"{person}-{visit},{person},{person}{visit}{n},{n}" for person in range(4) for visit in (1, 2) for n in (0, 1)
    ]
    source = _csv(tmp_path / "a.csv", "visit,person,value,label", rows)
    dataset, clients = _read(dataset=source, clients_by="visit", holdout=0.5, holdout_by="person")
    people = dataset.columns["person"]
    assert len(clients) == 4
    assert set(people.train) | set(people.test) == {0, 1, 2, 3}
    assert not set(people.train) & set(people.test)
    assert dataset.shape == (1,)  # neither the visit nor the person is learnt from


@pytest.mark.parametrize(
    ("header", "rows", "options", "words"),
    [
        ("who,age,label", ["a,1,0", ",2,1", "b,3,0"], {"clients_by": "who"}, "example 2 has no who"),
        ("who,age,label", ["a,1,0", "b,old,1"], {"clients_by": "who"}, "'age' has 'old' for example 2"),
        ("who,age,label", ["a,1,0", "b,,1"], {"clients_by": "who"}, "'age' has no value for example 2"),
        ("who,age,label", ["a,1,0", "b,inf,1"], {"clients_by": "who"}, "must be finite numbers"),
        ("who,age,label", ["a,1,0", "b,1e39,1"], {"clients_by": "who"}, "'1e39' for example 2.* of at most 3.4e.38"),
        ("who,age,label", ["a,1,0", "b,2"], {"clients_by": "who"}, "row 2 has 2 values, and there are 3 columns"),
        ("who,age,label", [], {"clients_by": "who"}, "there are no rows"),
        ("who,age,ill", ["a,1,0"], {"clients_by": "who"}, "no column 'label' with the classes"),
        ("who,age,label", ["a,1,0", "b,2,1"], {"clients_by": "whom"}, "unknown column 'whom'. Did you mean 'who'"),
        ("who,label", ["a,1", "b,2"], {"clients_by": "who"}, "no column is left to learn from"),
        ("who,who,label", ["a,1,2"], {"clients_by": "who"}, "names a column twice"),
        ("1,2.5,3", ["a,1,2"], {"clients_by": "who"}, "no column 'label'"),
        ("", [], {"clients_by": "who"}, "must name the columns"),
        ("who,age,label", ["a,1,0", "a,2,1"], {"clients_by": "who", "holdout_by": "clients"}, "one who alone"),
        ("who,age,label", ["a,1,0", "b,2,1"], {"clients_by": "who", "holdout_by": "clients"}, "in the test set alone"),
        ("who,age,label", ["a,1,0", "b,2,1"], {"clients_by": "who"}, "leaves no example .* to test with"),
        ("age,label", ["1,0", "2,1"], {"holdout_by": "clients"}, "--holdout-by clients needs real clients"),
    ],
)
def test_bad_tables_get_one_sentence(
    tmp_path: Path, header: str, rows: list[str], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(FedSeqError, match=words):
        _read(dataset=_csv(tmp_path / "a.csv", header, rows), **options)


@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        ({"client_test": ["a", "z"]}, {}, "client a is in train and in test, and client z in test alone"),
        ({"client_train": ["a", "b"]}, {}, "client has 2 values for 3 examples"),
        ({"client_train": ["a", "", "b"]}, {}, "example 2 has no client_train"),
        ({"client_train": None}, {}, "array 'client_train' is missing"),
        ({"y_test": [2, 2]}, {}, "class 2 is in the test set alone"),
        ({}, {"holdout": 0.5}, "has a test set of its own"),
    ],
)
def test_bad_arrays_get_one_sentence(
    tmp_path: Path, changes: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    arrays = {
        "x_train": np.zeros((3, 2)), "y_train": [0, 1, 1], "client_train": ["a", "b", "a"],
        "x_test": np.zeros((2, 2)), "y_test": [0, 1], "client_test": ["a", "b"],
    }  # fmt: skip
    kept: dict[str, Any] = {key: np.array(v) for key, v in (arrays | changes).items() if v is not None}
    np.savez(tmp_path / "a.npz", **kept)
    with pytest.raises(FedSeqError, match=words):
        _read(dataset=f"npz:{tmp_path}/a.npz", clients_by="client", **options)


def test_an_empty_client_folder_gets_one_sentence(tmp_path: Path) -> None:
    for client in ("ann", "bob"):
        (tmp_path / "train" / client / "yes").mkdir(parents=True)
        (tmp_path / "train" / client / "yes" / "a.png").write_bytes(encode(np.zeros((1, 4, 4), np.uint8)))
    (tmp_path / "train" / "cyd").mkdir()
    with pytest.raises(FedSeqError, match="cyd: this client holds nothing"):
        _read(dataset=f"folder:{tmp_path}", clients_by="folder", holdout=0.5)


@pytest.mark.parametrize("option", ["num_clients", "alpha", "partition"])
def test_what_deals_examples_has_no_effect_on_clients_that_exist(option: str) -> None:
    value = {"num_clients": 5, "alpha": 0.5, "partition": "iid"}[option]
    with pytest.raises(FedSeqError, match="has no effect in this run"):
        resolve({"dataset": "csv:a.csv", "clients_by": "who", option: value})
    assert resolve({"dataset": "csv:a.csv", option: value}).options()[option] == value


def test_clients_by_has_no_effect_on_data_without_columns() -> None:
    with pytest.raises(FedSeqError, match="--clients-by has no effect in this run: it is for npz:"):
        resolve({"dataset": "digits", "clients_by": "who"})


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["1", "1.0", "0"], ("0", "1")),  # one class
        (["10.0", "9.0", "9.0"], ("9", "10")),
        (["no", "yes", "no"], ("no", "yes")),
        (['"NA"', "DE", "DE"], ("DE", "NA")),  # Namibia, quoted
        (['"null"', '"nan"', '"nan"'], ("nan", "null")),
        (["007", "7", "7"], ("007", "7")),  # which nobody takes for numbers
        (["1.5", "2.5", "1.5"], ("1.5", "2.5")),
    ],
)
def test_classes_of_a_csv_file_are_what_a_reader_expects(
    tmp_path: Path, labels: list[str], names: tuple[str, ...]
) -> None:
    rows = [f"{label},{age},{number}" for number, (label, age) in enumerate(zip(labels * 4, range(12), strict=True))]
    dataset, _ = _read(dataset=_csv(tmp_path / "a.csv", "label,age,dose", rows), holdout=0.25, num_clients=1)
    assert dataset.class_names == names


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["NA", "DE", "DE"], "example 1 has no label.* unless in quotes"),
        (["a", "nan", "b"], "example 2 has no label"),
        (["a", "b", " null "], "example 3 has no label"),
        (["1.5", "1.50", "2"], "label is '1.5' and '1.50', which are one number"),
    ],
)
def test_labels_that_are_missing_or_ambiguous_are_refused(tmp_path: Path, labels: list[str], words: str) -> None:
    source = _csv(tmp_path / "a.csv", "label,age", [f"{label},{age}" for age, label in enumerate(labels)])
    with pytest.raises(FedSeqError, match=words):
        _read(dataset=source, holdout=0.3, num_clients=1)


@pytest.mark.parametrize(
    ("header", "row", "columns"),
    [
        ('"age, in years";"label"', "{age};{label}", ("age, in years",)),
        ('"name, first, last";dose;label', "{age};1;{label}", ("name, first, last", "dose")),
        ('"two\nlines",label', "{age},{label}", ("two\nlines",)),
        ('age, "label"', "{age},{label}", ("age",)),
    ],
)
def test_a_quoted_header_reads_right(tmp_path: Path, header: str, row: str, columns: tuple[str, ...]) -> None:
    rows = [row.format(age=number, label=number % 2) for number in range(8)]
    dataset, _ = _read(dataset=_csv(tmp_path / "a.csv", header, rows), holdout=0.25, num_clients=1)
    assert dataset.features == columns
    assert {*dataset.x_train[:, 0], *dataset.x_test[:, 0]} == set(range(8))


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    with (tmp_path / "a.csv").open("wb") as file:
        file.write(b"age,label\n1,0\n")
        file.truncate(30 * 10**9)  # a sparse file
    with pytest.raises(FedSeqError, match=r"a\.csv has a line of more than 16,777,216 characters"):
        _read(dataset=f"csv:{tmp_path / 'a.csv'}", holdout=0.3, num_clients=1)


def test_parquet_parts_of_different_types_are_refused(tmp_path: Path) -> None:
    for number, ages in enumerate(([1, 2], ["3", "4"])):
        pq.write_table(pa.table({"age": ages, "label": [0, 1]}), tmp_path / f"a-{number}.parquet")
    with pytest.raises(FedSeqError, match=r"a-1\.parquet: column 'age' holds words, and in a-0\.parquet numbers"):
        _read(dataset=f"parquet:{tmp_path}/a-*.parquet", holdout=0.3, num_clients=1)


def test_clients_are_alike_over_parts(tmp_path: Path) -> None:
    """A whole number is a float beside missing ones of another part, and the same client."""
    for number, who in enumerate(([1, 2, 1, 2], [1.0, 2.0, 2.0, 1.0])):
        pq.write_table(pa.table({"who": who, "age": range(4), "label": [0, 1, 1, 0]}), tmp_path / f"a-{number}.parquet")
    dataset, clients = _read(dataset=f"parquet:{tmp_path}/a-*.parquet", clients_by="who", holdout=0.25)
    assert dataset.owners is not None
    assert (dataset.owners.names, len(clients)) == (("1", "2"), 2)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"y": [1, 2, 3, 1]}, "no example has label 0, and the model will have an output for each number from 0 to 3"),
        ({"y": [0, 3, 0, 3]}, "no example has label 1 and 1 more"),
    ],
)
def test_gaps_between_labels_are_warned_of(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    np.savez(tmp_path / "a.npz", **{"x": np.zeros((4, 2)), **arrays})
    with pytest.warns(UserWarning, match=words):
        _read(dataset=f"npz:{tmp_path}/a.npz", holdout=0.5, num_clients=1)


def test_a_test_class_that_nobody_holds_is_warned_of(tmp_path: Path) -> None:
    x = np.zeros((3, 2))
    np.savez(tmp_path / "a.npz", x_train=x, y_train=[0, 1, 1], x_test=x, y_test=[0, 1, 2])
    with pytest.warns(UserWarning, match="class 2 is in the test set alone, so that nobody learns it"):
        _read(dataset=f"npz:{tmp_path}/a.npz", num_clients=1)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": np.zeros(4)}, r"x has shape \[4\]; give each example a row of features"),
        ({"y": np.array([0, 1, 0, 2**63 + 1], np.uint64)}, "label 9223372036854775809 among 4 examples"),
    ],
)
def test_arrays_that_are_no_examples_are_refused(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    np.savez(tmp_path / "a.npz", **{"x": np.zeros((4, 2)), "y": [0, 1, 0, 1], **arrays})
    with pytest.raises(FedSeqError, match=words):
        _read(dataset=f"npz:{tmp_path}/a.npz", holdout=0.5, num_clients=1)
