"""A lease in an object store: numbered objects, put if absent, of which the last one counts."""

from __future__ import annotations

import os
import secrets
import socket
import time
from typing import TYPE_CHECKING

from neve.buffer.layout import NUMBER_DIGITS
from neve.buffer.window import NANOS

if TYPE_CHECKING:
    from neve.buffer.layout import StoredFile
    from neve.buffer.store import BufferStore


class ObjectLease:
    """The `Lease` of a bucket. Of two that put the same number, one wins.

    To keep it, its holder puts the next number; the store's own time of the last one says when the
    holder was last seen. No object is ever replaced, so that a store needs no other condition than
    the one that segments need.
    """

    def __init__(self, store: BufferStore, prefix: str, seconds: float) -> None:
        self._store = store
        self._prefix = prefix
        self._seconds = seconds
        self._holder = f"{socket.gethostname()} {os.getpid()} {secrets.token_hex(6)}".encode()
        self._held: str | None = None

    def hold(self) -> bool:
        found = self._store.files(self._prefix)
        last = found[-1] if found else None
        if last is not None and last.path != self._held and self._is_fresh(last):
            self._held = None
            return False
        path = self._following(last)
        if not self._store.put_new(path, self._holder) and not self._is_ours(path):
            self._held = None
            return False
        self._held = path
        self._store.delete([one.path for one in found])
        return True

    def release(self) -> None:
        if self._held is not None:
            self._store.delete([self._held])
            self._held = None

    def _following(self, last: StoredFile | None) -> str:
        number = int(last.path.rpartition("/")[2]) + 1 if last else 1
        return f"{self._prefix}/{number:0{NUMBER_DIGITS}d}"

    def _is_fresh(self, last: StoredFile) -> bool:
        # Also when it is from the future, by no more than that: clocks differ.
        age = time.time_ns() - last.modified_unix_nano
        return abs(age) <= self._seconds * NANOS

    def _is_ours(self, path: str) -> bool:
        # A put that was repeated inside the client finds its own first attempt.
        return self._store.read(path) == self._holder
