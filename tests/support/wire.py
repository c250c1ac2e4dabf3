"""Requests written by hand: large ones quickly, and ones that no message class would write."""

from __future__ import annotations

from tests.support.otlp_messages import varint


def wrapped(wire: bytes, *fields: int) -> bytes:
    """Return a message inside messages: under these fields, from the inside."""
    for field in fields:
        wire = varint(field << 3 | 2) + varint(len(wire)) + wire
    return wire


def attribute(key: str, text: str, *fields: int) -> bytes:
    """Return a string attribute under some fields."""
    return wrapped(wrapped(key.encode(), 1) + wrapped(wrapped(text.encode(), 1), 2), *fields)


def request(records: list[bytes], resource: bytes = b"") -> bytes:
    """Return a request of any signal: all its records are under one resource and one scope."""
    scope = b"".join(wrapped(record, 2) for record in records)
    return wrapped(wrapped(resource, 1) + wrapped(scope, 2), 1)
