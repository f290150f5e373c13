"""Data that Python packages carry. Their files are read where they lie; the packages are not imported."""

from importlib.util import find_spec
from pathlib import Path

from fedseq.basics.errors import FedSeqError


def packaged_files(name: str, package: str, inside: str, files: tuple[str, ...], data_dir: Path | None) -> list[Path]:
    """These files in `data_dir` if it is given, else in the folder `inside` of the installed package."""
    spec = find_spec(package)
    installed = [Path(place) / inside for place in (spec and spec.submodule_search_locations) or ()]
    places = [data_dir] if data_dir else installed
    for place in places:
        if all((place / file).is_file() for file in files):
            return [place / file for file in files]
    raise FedSeqError(
        f"no {name} data{f' in {data_dir}' if data_dir else ''}: {' and '.join(files)}, which the package {package} "
        f"carries. Get it with: pip install --no-deps {package}   or name a folder that has it with --data-dir."
    )
