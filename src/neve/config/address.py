"""Addresses to listen on, as `host:port`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator

from neve.errors import ConfigError

LOOPBACK = "127.0.0.1"
LARGEST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. Port 0 takes any that is free."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Say whether only this machine can connect."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read `host:port`, the host in brackets if it is an IPv6 address.

    Raises:
        ConfigError: it is no address.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > LARGEST_PORT:
        raise ConfigError(f"{text!r} is not an address to listen on", hint=_hint(text))
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def _hint(text: str) -> str:
    port = text.removeprefix(":")
    if port.isdigit() and int(port) <= LARGEST_PORT:
        return f"write 127.0.0.1:{port} for this machine only, 0.0.0.0:{port} for all networks"
    return (
        f"write host:port, such as 127.0.0.1:4318 or [::1]:4318, with a port up to {LARGEST_PORT}"
    )


def _listen_address(value: Any) -> Any:
    """Check an address; a port alone is one of this machine only, which is the safe choice."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return value
    # Environment variables are always text.
    text = f"{LOOPBACK}:{value}" if str(value).isdigit() else str(value)
    try:
        parse_address(text)
    except ConfigError as error:
        raise ValueError(f"{error.message}; {error.hint}") from None
    return text


# host:port; in the file also a port alone.
ListenAddress = Annotated[str, BeforeValidator(_listen_address)]
