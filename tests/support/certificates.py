"""A certificate authority for a test, and what it signed."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Certificates:
    """Files in PEM form."""

    ca_cert: Path
    server_cert: Path
    server_key: Path
    client_cert: Path
    client_key: Path


def make_certificates(directory: Path) -> Certificates:
    """Write an authority, a server of localhost and a client."""
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _sign("ca", ca_key.public_key(), "ca", ca_key, is_ca=True)
    made = Certificates(
        *(directory / name for name in ("ca.pem", "server.pem", "server.key", "c.pem", "c.key"))
    )
    made.ca_cert.write_bytes(_pem(ca))
    for name, cert_path, key_path in (
        ("localhost", made.server_cert, made.server_key),
        ("client", made.client_cert, made.client_key),
    ):
        key = ec.generate_private_key(ec.SECP256R1())
        cert_path.write_bytes(_pem(_sign(name, key.public_key(), "ca", ca_key, is_ca=False)))
        key_path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
    return made


def _sign(subject, public_key, issuer, issuer_key, *, is_ca):
    now = dt.datetime.now(dt.timezone.utc)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    usage = {
        "digital_signature": True,
        "key_cert_sign": is_ca,
        "crl_sign": is_ca,
        "content_commitment": False,
        "key_encipherment": False,
        "data_encipherment": False,
        "key_agreement": False,
        "encipher_only": False,
        "decipher_only": False,
    }
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(_name(issuer))
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .sign(issuer_key, hashes.SHA256())
    )


def _name(common_name):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM)
