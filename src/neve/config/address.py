"""Addresses to listen on, as `host:port`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from neve.errors import ConfigError


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
    """Read `host:port`, the host in brackets if it is an IPv6 address."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(
            f"{text!r} is not an address to listen on", hint="write host:port, [::1]:4318 for IPv6"
        )
    return Address(host.removeprefix("[").removesuffix("]"), int(port))
