"""The TLS contexts of the receiver's ports, and how their certificates are replaced."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from neve.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from neve.receive.spec import TlsSpec

PEM_BEGIN = b"-----BEGIN "


class ServerContext:
    """The context of a port that listens: each connection gets the newest one.

    Replaced as a whole, so that a new client_ca holds too, and no session of the old one is
    resumed. Connections that are open stay as they are.
    """

    def __init__(self, newest: ssl.SSLContext, protocols: Sequence[str]) -> None:
        self.newest = newest
        self.protocols = tuple(protocols)


def server_context(tls: TlsSpec, protocols: Sequence[str]) -> ServerContext:
    """Return the context of a port that speaks `protocols` (ALPN names).

    Raises:
        ConfigError: a certificate or key cannot be read, or the two do not belong together.
    """
    return ServerContext(_load(tls, protocols), protocols)


def replace_certificates(contexts: Iterable[ServerContext], tls: TlsSpec) -> None:
    """Read the files again, for connections that are accepted from now on: of all ports or of none.

    Raises:
        ConfigError: as `server_context`; nothing has changed then.
    """
    loaded = [(context, _load(tls, context.protocols)) for context in contexts]
    for context, newest in loaded:
        context.newest = newest


def _load(tls: TlsSpec, protocols: Sequence[str]) -> ssl.SSLContext:
    files = {"cert": tls.cert, "key": tls.key, "client_ca": tls.client_ca}
    for name, path in files.items():
        if path is not None:
            _require_pem(name, path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without a password OpenSSL would ask for one at the terminal, and wait.
        context.load_cert_chain(tls.cert, tls.key, password="")
    except OSError as error:
        raise _unusable(
            f"cert {tls.cert} and key {tls.key}: {error}",
            "name a certificate and its own private key, without a password",
        ) from error
    if tls.client_ca:
        try:
            context.load_verify_locations(tls.client_ca)
        except OSError as error:
            raise _unusable(
                f"client_ca {tls.client_ca}: {error}", "name the certificate of an authority"
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(list(protocols))
    return context


def _require_pem(name: str, path: str) -> None:
    """Refuse a file that OpenSSL cannot read: its own errors name neither the file nor the key."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise _unusable(
            f"{name} {path} cannot be read: {error.strerror}",
            f"correct receive.tls.{name}; a relative path starts where neve.yaml lies",
        ) from error
    if PEM_BEGIN not in content:
        raise _unusable(
            f"{name} {path} is not a PEM file",
            f"receive.tls.{name} names a file with a line -----BEGIN …-----; convert another form "
            "with: openssl x509 or openssl pkey",
        )


def _unusable(reason: str, hint: str) -> ConfigError:
    return ConfigError(f"receive.tls cannot be used: {reason}", hint=hint)
