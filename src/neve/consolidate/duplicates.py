"""Requests that were sent to two receivers: which of the copies is stored. Pure.

A receiver drops what its own stream already has. Behind a load balancer a retry may reach another
one; that copy is dropped here, if the first was consumed, or stands earlier in this very batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from neve.buffer.frame import Entry
from neve.buffer.reader import KnownRequests
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
    # Its segment is the last one of its declaration, and may be higher than that of the request.
    is_retired: bool = False

    @classmethod
    def of(cls, part: KnownRequests, position: int, entry: Entry) -> Identity:
        """Return what a part of a buffer says of one of its requests."""
        return cls(
            entry.received_unix_nano,
            part.stream,
            part.number,
            position,
            entry.key,
            part.is_retired,
        )

    @property
    def place(self) -> Place:
        return self.stream, self.segment, self.position


def possible_duplicates(known: Sequence[KnownRequests], last: Mapping[str, int]) -> list[Identity]:
    """Return the requests of a batch, and of all others those that may be the same as one of them.

    The dedup window may hold hundreds of thousands of requests, and the batch ten: the others are
    searched for by hash, and no object is made for them.

    Args:
        last: the last segment of each stream that the batch reads.

    Raises:
        NotFoundError: requests that may be copies were retired after they were listed.
    """
    of_batch = [
        part.index.hashes
        for part in known
        if not part.is_retired and part.number <= last.get(part.stream, 0)
    ]
    wanted = np.unique(np.concatenate(of_batch)) if of_batch else np.empty(0, np.uint64)
    identities = []
    for part in known:
        positions = part.index.positions_of(wanted)
        identities += [
            Identity.of(part, position, entry)
            for position, entry in zip(positions, part.index.entries(positions), strict=True)
        ]
    return identities


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
        # A table with a mark of a stream is past all that was retired of it: what lies between the
        # mark and the declaration holds no rows for the table.
        if one.segment <= marks.get(one.stream, 0) or (one.is_retired and one.stream in marks):
            consumed[one.key] = max(one.received_unix_nano, consumed.get(one.key, 0))
        # What was retired is not in the batch, and a table without a mark has nothing of it.
        elif not one.is_retired and one.stream in ranges and one.segment <= ranges[one.stream].last:
            found.append(one)
    dropped = set()
    for one in sorted(found):
        stored = consumed.get(one.key)
        if stored is not None and abs(one.received_unix_nano - stored) <= window_nanos:
            dropped.add(one.place)
        else:
            consumed[one.key] = one.received_unix_nano
    return frozenset(dropped)
