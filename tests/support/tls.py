"""A certificate that nobody trusts."""

from __future__ import annotations

import ssl
import subprocess
from typing import TYPE_CHECKING

from tests.support.install import OPENSSL

if TYPE_CHECKING:
    from pathlib import Path


def self_signed(directory: Path) -> ssl.SSLContext:
    """Make a key and a certificate for it, and the context of a server that shows them."""
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    subprocess.run(
        [
            *(OPENSSL.path(), "req", "-x509", "-newkey", "ec", "-pkeyopt"),
            *("ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"),
            *("-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context
