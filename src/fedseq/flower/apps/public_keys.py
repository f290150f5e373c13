"""The clients' public keys, as files of the server's."""

from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from fedseq.basics.errors import FedSeqError


def read_keys(folder: Path, num_clients: int) -> dict[int, bytes]:
    """The public key of every client, in the form in which Flower names the key of a node (`NodeInfo.public_key`)."""
    return {client: read_key(folder / f"node-{client}.pub") for client in range(num_clients)}


def read_key(path: Path) -> bytes:
    try:
        key = serialization.load_ssh_public_key(path.read_bytes())
    except FileNotFoundError:
        raise FedSeqError(
            f"there is no public key {path}: its site has not joined yet, or its key was not registered: "
            f"fedseq federation register {path.parent.parent} {path.name}"
        ) from None
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise FedSeqError(f"{path} is not a public key in OpenSSH format: {error}") from None
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
