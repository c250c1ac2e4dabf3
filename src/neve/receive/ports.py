"""The ports of a receiver: of one process, or shared by its workers."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

from neve.config.address import Address, parse_address
from neve.errors import ConfigError

if TYPE_CHECKING:
    from neve.receive.spec import ReceiveSpec

logger = logging.getLogger(__name__)

BACKLOG = 1024


def listen(address: Address, *, share_port: bool) -> socket.socket:
    """Return a socket that listens.

    Args:
        share_port: let other processes of this user listen there as well (`SO_REUSEPORT`); the
            system spreads connections among them.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    bound = _bind(address, share_port=share_port)
    try:
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise cannot_listen(address, error) from error
    return bound


def reserve(address: Address) -> socket.socket:
    """Return a socket that holds a port for workers without listening on it.

    The port stays the same while workers come and go, also where any free one was asked for.

    Raises:
        ConfigError: the address cannot be listened on, or another receiver does.
    """
    if address.port:
        # Alone first: with SO_REUSEPORT two receivers would share a port unnoticed.
        listen(address, share_port=False).close()
    return _bind(address, share_port=True)


def cannot_listen(address: Address, error: Exception) -> ConfigError:
    """Return what to raise when an address cannot be listened on."""
    return ConfigError(
        f"cannot listen on {address}: {error}",
        hint="choose another address in receive.http or receive.grpc",
    )


def warn_if_anyone_can_send(spec: ReceiveSpec) -> None:
    """Log which ports others can reach while no token is asked for."""
    if spec.tokens or (spec.tls and spec.tls.client_ca):
        return
    for name, text in (("http", spec.http), ("grpc", spec.grpc)):
        address = parse_address(text)
        if not address.is_loopback:
            logger.warning(
                "receive.%s listens on %s without receive.tokens: whoever reaches it can send",
                name,
                address,
            )


def _bind(address: Address, *, share_port: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    bound = socket.socket(family)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share_port:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind((address.host, address.port))
    except OSError as error:
        bound.close()
        raise cannot_listen(address, error) from error
    return bound
