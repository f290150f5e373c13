"""Certificates and keys of a federation: who the server is, and who its nodes are.

The authority signs one server certificate; its private key is needed for nothing else and can be put away. A node has
no certificate: it signs its requests with a key of its own, whose public half is registered with the SuperLink.
"""

import datetime
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedseq.basics.errors import FedSeqError
from fedseq.basics.files import write_atomically

CURVE = ec.SECP384R1()
AUTHORITY_DAYS = 3650
SERVER_DAYS = 825  # the longest that all TLS clients accept
CLOCKS_DIFFER = datetime.timedelta(hours=1)
ALWAYS_NAMED = ("127.0.0.1", "localhost")
_NO_USAGE = {
    "digital_signature": False,
    "content_commitment": False,
    "key_encipherment": False,
    "data_encipherment": False,
    "key_agreement": False,
    "key_cert_sign": False,
    "crl_sign": False,
    "encipher_only": False,
    "decipher_only": False,
}


def write_certificates(folder: Path, host: str) -> None:
    """An authority and the certificate of a SuperLink that nodes reach under this name or address."""
    authority_key, server_key = (ec.generate_private_key(CURVE) for _ in range(2))
    authority = _authority(authority_key)
    server = _server(server_key, host, authority, authority_key)
    _write_private(folder / "ca.key", _pem(authority_key))
    _write_private(folder / "server.key", _pem(server_key))
    (folder / "ca.crt").write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    (folder / "server.crt").write_bytes(server.public_bytes(serialization.Encoding.PEM))


def ensure_node_key(path: Path) -> None:
    """A key that is there, or a new one, in the format that `ssh-keygen -t ecdsa -b 384` writes and Flower reads; the
    public half beside it."""
    if not path.exists():
        private = ec.generate_private_key(CURVE).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
        _write_private(path, private)
    public = path.with_name(f"{path.name}.pub")
    if public.exists():
        return
    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), None).public_key()
    except (ValueError, UnsupportedAlgorithm):
        raise FedSeqError(
            f"{path} is not a whole private key. Remove it: a new one is made, to be registered."
        ) from None
    text = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    write_atomically(public, text + f" {path.name}\n".encode())


def _authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = _name("FedSeq federation authority")
    builder = _builder(name, name, key, AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    usage = x509.KeyUsage(**{**_NO_USAGE, "key_cert_sign": True, "crl_sign": True})
    builder = builder.add_extension(usage, critical=True)
    return builder.sign(key, hashes.SHA384())


def _server(
    key: ec.EllipticCurvePrivateKey, host: str, authority: x509.Certificate, authority_key: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    names = dict.fromkeys((host, *ALWAYS_NAMED))
    builder = _builder(_name("FedSeq SuperLink"), authority.subject, key, SERVER_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    usage = x509.KeyUsage(**{**_NO_USAGE, "digital_signature": True})
    builder = builder.add_extension(usage, critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(n) for n in names]), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    return builder.add_extension(issuer, critical=False).sign(authority_key, hashes.SHA384())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - CLOCKS_DIFFER).not_valid_after(now + datetime.timedelta(days=days))
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write_private(path: Path, content: bytes) -> None:
    """Never readable by others, not even for the moment between creating and writing."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


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
