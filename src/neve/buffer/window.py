"""Which requests were stored within the last minutes, in some 40 bytes for each."""

from __future__ import annotations

import hashlib
import struct
from array import array
from collections import deque

import numpy as np

from neve.limits import DEDUP_REQUESTS

NANOS = 1_000_000_000

_DIGEST = struct.Struct("<QQ")
# A slice holds the keys of this share of the window, or fewer. Whole slices are forgotten.
_SLICES = 4
_LEAST_ROOM = 1024
# Of a slice's places, so many are taken when it is full: a search then looks at eight or so.
_FULL = 0.75
# How much more room a slice has than its predecessor used, and than one that was full early.
_SAME, _GROWN = 1.15, 1.5


class DedupWindow:
    """Keys of the requests stored within the last `seconds`. Not thread-safe.

    If there are more than `most` keys, the oldest are forgotten early. A copy of their requests is
    then stored, and consolidation, which has the hashes of all, leaves it out.
    """

    def __init__(self, seconds: float, most: int = DEDUP_REQUESTS) -> None:
        self._nanos = int(seconds * NANOS)
        self._most = most
        self._slices: deque[_Slice] = deque()
        # Keys that were forgotten within the window, for want of room.
        self.forgotten = 0

    def __len__(self) -> int:
        return sum(one.count for one in self._slices)

    @property
    def is_on(self) -> bool:
        return self._nanos > 0

    def add(self, key: bytes, received_unix_nano: int) -> None:
        """Remember a stored request, and forget those that are older than the window.

        Add in the order of `received_unix_nano`, or nearly: what is added last is forgotten last.
        """
        if not self.is_on:
            return
        since = received_unix_nano - self._nanos
        while self._slices and self._slices[0].newest < since:
            self._slices.popleft()
        current = self._slices[-1] if self._slices else None
        is_old = current and received_unix_nano - current.oldest > self._nanos // _SLICES
        if current is None or current.is_full or is_old:
            current = self._begin_slice(current, since, received_unix_nano)
        current.put(hash(key), *_digest(key), received_unix_nano)

    def _begin_slice(self, before: _Slice | None, since: int, oldest: int) -> _Slice:
        room = _LEAST_ROOM
        if before is not None:
            room = max(room, int(before.count * (_GROWN if before.is_full else _SAME)))
        room = min(room, max(1, self._most // _SLICES))
        while self._slices and len(self) + room > self._most:
            self.forgotten += self._slices.popleft().count_since(since)
        self._slices.append(_Slice(room, oldest))
        return self._slices[-1]

    def has(self, key: bytes, now_unix_nano: int) -> bool:
        """Say whether this request was stored no longer than the window ago."""
        place, digest = hash(key), _digest(key)
        since = max(0, now_unix_nano - self._nanos)
        # By a loop: it is asked for each request.
        for one in reversed(self._slices):  # noqa: SIM110
            if one.received(place, *digest) >= since:
                return True
        return False


def _digest(key: bytes) -> tuple[int, int]:
    first, second = _DIGEST.unpack(hashlib.blake2b(key, digest_size=16).digest())
    # 0 is a place that is free.
    return first or 1, second


class _Slice:
    """A hash table. A key is at its place or behind it; Python's hash keeps that place a secret."""

    def __init__(self, room: int, oldest: int) -> None:
        self._room = room
        self._places = int(room / _FULL) + 1
        # At each place both halves of a digest, and when the request was received.
        self._table = array("Q", [0]) * (3 * self._places)
        self.count = 0
        self.oldest = self.newest = oldest

    @property
    def is_full(self) -> bool:
        return self.count >= self._room

    def put(self, place: int, first: int, second: int, received_unix_nano: int) -> None:
        table, end = self._table, len(self._table)
        at = place % self._places * 3
        while table[at]:
            at += 3
            if at == end:
                at = 0
        table[at], table[at + 1], table[at + 2] = first, second, received_unix_nano
        self.count += 1
        self.newest = max(self.newest, received_unix_nano)

    def received(self, place: int, first: int, second: int) -> int:
        """Return when a request was received; -1 if it is not here."""
        table, end = self._table, len(self._table)
        at = place % self._places * 3
        received = -1
        while known := table[at]:
            if known == first and table[at + 1] == second:
                received = max(received, table[at + 2])
            at += 3
            if at == end:
                at = 0
        return received

    def count_since(self, since: int) -> int:
        """Return how many of the requests were received since then."""
        rows = np.frombuffer(self._table, np.uint64).reshape(-1, 3)
        return int(np.count_nonzero((rows[:, 0] != 0) & (rows[:, 2] >= max(0, since))))
