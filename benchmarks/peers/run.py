"""`make bench-peers`: the same round in other frameworks, each in an environment of its own in a cache folder."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from round import best, equal_clients, pictures, rounds, write  # noqa: E402 - the folder above is no package

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fedseq" / "peers"
# torch comes first and pinned: a looser request pulls CUDA packages.
PEERS = {
    "Flower simulation (flwr 1.41), 2 actors": ("flower", ("torch==2.13.0", "numpy"), ("flwr[simulation]==1.41.0",)),
    "pfl-research, 1 process": ("pfl", ("torch==2.13.0", "numpy"), ("pfl[pytorch]",)),
    "a plain PyTorch loop, 1 process": ("plain", ("torch==2.13.0", "numpy")),
}


def python_of(name: str, *installs: tuple[str, ...]) -> Path:
    """The interpreter of the peer's environment, which is made if it is not there."""
    folder = CACHE / name
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        for packages in installs:
            subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
        ready.touch()
    return python


def measure(name: str, *installs: tuple[str, ...]) -> tuple[float, float]:
    """Core-seconds and seconds of the peer's best round."""
    done = subprocess.run(
        [python_of(name, *installs), HERE / f"run_{name}.py"], cwd=HERE, stdout=subprocess.PIPE, text=True, check=True
    )
    words = next(line for line in done.stdout.splitlines() if line.startswith("RESULT")).split()
    return float(words[1]), float(words[2])


def main() -> None:
    train, _ = pictures(None)
    ours = best(rounds(train, equal_clients(500, 100, len(train.x)), "fedavg", 2))
    rows = [("FedSeq, 2 workers", f"{ours.cores:.1f} core-s, {ours.wall:.1f} s")]
    print(*rows[0], sep=": ", flush=True)  # noqa: T201
    for title, (name, *installs) in PEERS.items():
        cores, wall = measure(name, *installs)
        ratios = f"({cores / ours.cores:.1f}x), {wall:.1f} s ({wall / ours.wall:.1f}x)"
        rows.append((title, f"{cores:.1f} core-s {ratios}"))
        print(*rows[-1], sep=": ", flush=True)  # noqa: T201
    write(rows, "make bench-peers")


if __name__ == "__main__":
    main()
