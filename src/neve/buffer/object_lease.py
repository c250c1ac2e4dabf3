"""A lease in an object store: numbered objects, put if absent; the last one says who holds it."""

from __future__ import annotations

import os
import secrets
import socket
import time
from typing import TYPE_CHECKING

from neve.buffer.layout import NUMBER_DIGITS
from neve.buffer.window import NANOS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neve.buffer.layout import StoredFile
    from neve.buffer.store import BufferStore


class ObjectLease:
    """The `Lease` of a bucket. If two processes put the same number, one of them wins.

    To keep the lease, its holder puts the next number; the store's own time of the last object says
    when it was last kept. No object is ever replaced, so a store needs no other condition than the
    one that segments need.
    """

    def __init__(self, store: BufferStore, prefix: str, seconds: float) -> None:
        self._store = store
        self._prefix = prefix
        self._seconds = seconds
        self._holder = f"{socket.gethostname()} {os.getpid()} {secrets.token_hex(6)}".encode()
        self._held: str | None = None
        self._held_at = 0.0

    def hold(self, listed: Sequence[StoredFile] | None = None) -> bool:
        held, self._held = self._held, None
        if held is not None and time.monotonic() - self._held_at < self._seconds:
            # Whoever takes the lease over later puts the next number, too: one of us wins.
            return self._put(self._path(_number(held) + 1), [held])
        files = self._store.files(self._prefix) if listed is None else listed
        objects = [file for file in files if file.path.startswith(f"{self._prefix}/")]
        last = objects[-1] if objects else None
        if last is not None and last.path != held and self._is_fresh(last):
            return False
        path = self._path(_number(last.path) + 1 if last else 1)
        return self._put(path, [file.path for file in objects])

    def _put(self, path: str, earlier: list[str]) -> bool:
        began = time.monotonic()
        if not self._store.put_new(path, self._holder) and not self._is_ours(path):
            return False
        self._held, self._held_at = path, began
        self._store.delete(earlier)
        return True

    def release(self) -> None:
        if self._held is not None:
            self._store.delete([self._held])
            self._held = None

    def _path(self, number: int) -> str:
        return f"{self._prefix}/{number:0{NUMBER_DIGITS}d}"

    def _is_fresh(self, last: StoredFile) -> bool:
        # Clocks differ: an object may also be from the future, by no more than that.
        age = time.time_ns() - last.modified_unix_nano
        return abs(age) <= self._seconds * NANOS

    def _is_ours(self, path: str) -> bool:
        # A put that was repeated inside the client finds its own first attempt.
        return self._store.read(path) == self._holder


def _number(path: str) -> int:
    return int(path.rpartition("/")[2])
