"""Whether every file that a table's metadata names is in its store, as long as recorded."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from neve.move.inventory import Inventory

if TYPE_CHECKING:
    from neve.lake.file_store import FileStore

_SIZES_AT_ONCE = 1000


def wrong_files(inventory: Inventory, store: FileStore) -> Iterator[str]:
    """Yield what is wrong with which file; nothing, if all are there. Writes nothing."""
    yield from map(str, inventory.problems)
    files = iter(inventory.files)
    while batch := list(islice(files, _SIZES_AT_ONCE)):
        sizes = store.sizes([file.path for file in batch])
        for file in batch:
            size = sizes[file.path]
            if size is None:
                yield f"{file.path}: it does not exist"
            elif file.size not in (None, size):
                yield f"{file.path}: it has {size} bytes, and the metadata says {file.size}"
