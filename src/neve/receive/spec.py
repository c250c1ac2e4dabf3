"""Where to listen, whom to let in, and how much to take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from neve.limits import DEFAULT_REQUEST_BYTES, IN_FLIGHT_BYTES

if TYPE_CHECKING:
    from neve.config import ReceiveSettings, Settings


@dataclass(frozen=True, slots=True)
class TlsSpec:
    """Files in PEM form. With `client_ca`, only clients it has signed may connect."""

    cert: str
    key: str
    client_ca: str | None = None


@dataclass(frozen=True, slots=True)
class TokenSpec:
    """A bearer token. Several tokens of one sender have the same name and the same rate."""

    token: str = field(repr=False)
    name: str = ""
    # Of this process, as received; None is no bound.
    max_bytes_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class ReceiveSpec:
    """An OTLP receiver."""

    http: str = "127.0.0.1:4318"
    grpc: str = "127.0.0.1:4317"
    # Other processes listen on the same ports: this is one of several workers.
    share_ports: bool = False
    # None lets everybody in.
    tokens: tuple[TokenSpec, ...] = ()
    tls: TlsSpec | None = None
    # Of a request, before and after decompression.
    max_request_bytes: int = DEFAULT_REQUEST_BYTES
    # Of all requests under way, as they came: what bounds the receiver's memory.
    max_in_flight_bytes: int = IN_FLIGHT_BYTES
    cors_origins: tuple[str, ...] = ()
    # Clients give up after 5 to 10 s, and send again; so waiting longer helps nobody.
    ack_timeout_seconds: float = 10.0
    # For a request to arrive, from its first byte to its last.
    request_timeout_seconds: float = 30.0
    keep_alive_seconds: int = 75
    retry_after_seconds: int = 2
    grace_seconds: float = 10.0


def receive_spec(settings: Settings) -> ReceiveSpec:
    """Return the receiver that a configuration asks for."""
    receive = settings.receive
    tls = receive.tls
    return ReceiveSpec(
        http=receive.http,
        grpc=receive.grpc,
        tokens=token_specs(receive, receive.workers),
        tls=TlsSpec(tls.cert, tls.key, tls.client_ca) if tls else None,
        max_request_bytes=receive.max_request_bytes,
        # One request always fits, as it came and unpacked.
        max_in_flight_bytes=max(IN_FLIGHT_BYTES, 2 * receive.max_request_bytes),
        cors_origins=receive.cors_origins,
    )


def token_specs(receive: ReceiveSettings, workers: int) -> tuple[TokenSpec, ...]:
    """Return the tokens that a configuration lets in.

    Args:
        workers: how many processes share the ports; each lets in its share of a sender's rate.
    """
    return tuple(
        TokenSpec(
            entry.token.get_secret_value(),
            entry.name or "",
            entry.max_bytes_per_second and entry.max_bytes_per_second / workers,
        )
        for entry in receive.tokens
    )
