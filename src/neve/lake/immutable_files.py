"""Small files of a store that never change, held in memory by their paths.

A table's metadata, manifests and deletion vectors have names that are given once. The next merge
reads what this one wrote or read, so that most of its requests would bring what is known.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict

from neve.limits import MIB

MOST_BYTES = 64 * MIB
MOST_FILE_BYTES = 4 * MIB
_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# As Iceberg's libraries and Neve name them. Others may give a name twice.
_NAMES = re.compile(
    rf"\d+-{_UUID}(\.gz)?\.metadata\.json|snap-\d+-\d+-{_UUID}\.avro|{_UUID}-m\d+\.avro"
    rf"|{_UUID}-deletes\.puffin"
)


class ImmutableFiles:
    """Files by store and path, the least recently used given up first. For threads."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._files: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self.size = 0

    def get(self, store: str, path: str) -> bytes | None:
        with self._lock:
            data = self._files.get((store, path))
            if data is not None:
                self._files.move_to_end((store, path))
            return data

    def put(self, store: str, path: str, data: bytes) -> None:
        """Hold a file that was read or written, if it is small and its name is given once."""
        if len(data) > MOST_FILE_BYTES or not _NAMES.fullmatch(path.rpartition("/")[2]):
            return
        with self._lock:
            self._drop(store, path)
            self._files[store, path] = data
            self.size += len(data)
            while self.size > self._most_bytes:
                self.size -= len(self._files.popitem(last=False)[1])

    def forget(self, store: str, path: str) -> None:
        """Give up a file that is deleted."""
        with self._lock:
            self._drop(store, path)

    def _drop(self, store: str, path: str) -> None:
        self.size -= len(self._files.pop((store, path), b""))


# One for the process: each load of a table makes a FileIO of its own.
held_files = ImmutableFiles()
