"""The kit that an operator hands to a site: which client it is, where the SuperLink is, and whose certificate to trust.

It holds no secret. Whoever has one can ask to be let in, and is not until the operator has registered the site's key;
but a site trusts the authority in it, so it has to come from the operator.
"""

import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import open_plain
from fedseq.flower.deployment.federation import Federation

FACTS, AUTHORITY = "kit.json", "ca.crt"
FORMAT = 1
MOST_BYTES = 64 << 10
_ALWAYS_ALIKE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Kit:
    node: int
    nodes: int
    host: str  # of the SuperLink
    port: int
    own_data: bool
    authority: str  # its certificate

    @property
    def files(self) -> dict[str, str]:
        facts = {name: value for name, value in vars(self).items() if name != "authority"}
        return {FACTS: json.dumps({"format": FORMAT, **facts}, indent=1) + "\n", AUTHORITY: self.authority}


def kit_of(federation: Federation, node: int) -> Kit:
    authority = (federation.certificates / AUTHORITY).read_text(encoding="utf-8")
    return Kit(node, federation.nodes, federation.host, federation.port, federation.own_data, authority)


def write_kit(kit: Kit, path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in kit.files.items():
            archive.writestr(zipfile.ZipInfo(name, _ALWAYS_ALIKE), text)


def read_kit(path: Path) -> Kit:
    """From the zip file, or from a folder that it was unpacked in. Only its two files are read, and bounded."""
    try:
        facts, authority = (_member(path, name) for name in (FACTS, AUTHORITY))
        found = json.loads(facts)
        if found.pop("format") != FORMAT:
            raise FedSeqError(f"{path} was written by another version of fedseq. Install the one that the server has.")
        kit = Kit(**found, authority=authority)
        _check(kit)
    except FileNotFoundError:
        raise FedSeqError(
            f"there is no kit {path}. It is the file kits/node-K.zip that the server's operator made with "
            "fedseq federation init."
        ) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, zipfile.BadZipFile) as error:
        raise FedSeqError(f"{path} is not a kit of a federation ({error}). Ask the server's operator for it.") from None
    return kit


def _member(path: Path, name: str) -> str:
    if path.is_dir():
        with open_plain(path / name) as file:
            content = file.read(MOST_BYTES + 1)
    else:
        with open_plain(path) as plain, zipfile.ZipFile(plain) as archive, archive.open(name) as file:
            content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"{name} is too large")
    return content.decode("utf-8")


def _check(kit: Kit) -> None:
    """What it says goes into command lines and paths."""
    numbers = (kit.node, kit.nodes, kit.port)
    if not all(type(number) is int for number in numbers) or not 0 <= kit.node < kit.nodes:
        raise ValueError("it names no client")
    if not re.fullmatch(r"[A-Za-z0-9.:-]+", kit.host) or not 0 < kit.port < 65536 or type(kit.own_data) is not bool:
        raise ValueError("it names no SuperLink")
    x509.load_pem_x509_certificate(kit.authority.encode())
