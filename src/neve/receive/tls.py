"""The TLS context of the receiver's ports."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from neve.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neve.receive.spec import TlsSpec


def server_context(tls: TlsSpec, protocols: Sequence[str]) -> ssl.SSLContext:
    """Return the context of a port that speaks `protocols` (ALPN names).

    Raises:
        ConfigError: a certificate or key cannot be read, or the two do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(tls.cert, tls.key)
        if tls.client_ca:
            context.load_verify_locations(tls.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:
        raise ConfigError(f"receive.tls cannot be used: {error}") from error
    context.set_alpn_protocols(list(protocols))
    return context
