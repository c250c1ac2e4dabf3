"""Requests that were sent to two receivers: which of the copies is stored. Pure.

A receiver drops what its own stream already has. Behind a load balancer a retry may reach another
one; that copy is dropped here, if the first was consumed, or stands earlier in this very batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from neve.publish.ranges import Marks, Ranges

Place = tuple[str, int, int]
"""Stream, segment, position."""


@dataclass(frozen=True, order=True)
class Identity:
    """A request, by what makes two of them the same one."""

    received_unix_nano: int
    stream: str
    segment: int
    position: int
    key: bytes

    @property
    def place(self) -> Place:
        return self.stream, self.segment, self.position


def find_duplicates(
    identities: Iterable[Identity], marks: Marks, ranges: Ranges, window_nanos: int
) -> frozenset[Place]:
    """Return the places in `ranges` that hold a copy of a request stored before.

    The same answer for the same marks, so a batch that is repeated drops the same copies.
    """
    if window_nanos <= 0:
        return frozenset()
    consumed: dict[bytes, int] = {}
    found: list[Identity] = []
    for one in identities:
        if one.segment <= marks.get(one.stream, 0):
            consumed[one.key] = max(one.received_unix_nano, consumed.get(one.key, 0))
        elif one.stream in ranges and one.segment <= ranges[one.stream].last:
            found.append(one)
    dropped = set()
    for one in sorted(found):
        stored = consumed.get(one.key)
        if stored is not None and abs(one.received_unix_nano - stored) <= window_nanos:
            dropped.add(one.place)
        else:
            consumed[one.key] = one.received_unix_nano
    return frozenset(dropped)
