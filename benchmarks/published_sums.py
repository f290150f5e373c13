"""Write SHA256SUMS of every published run in results/ anew, after its files were changed on purpose (renamed options).

    .venv/bin/python benchmarks/published_sums.py

The checksum of the model, which is not kept, stays as it is.
"""

from pathlib import Path

from fedseq.basics.files import digest, read_sums, write_sums

RESULTS = Path(__file__).parents[1] / "results"


def main() -> None:
    for config in RESULTS.rglob("config.yaml"):
        folder = config.parent
        sums = folder / "SHA256SUMS"
        model = {name: found for name, found in (read_sums(sums) or {}).items() if not (folder / name).exists()}
        files = {path.name: digest(path) for path in sorted(folder.iterdir()) if path.is_file() and path != sums}
        write_sums(sums, {**files, **model})


if __name__ == "__main__":
    main()
