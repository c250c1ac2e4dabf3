"""Remove files of an index that no retained snapshot needs."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

from neve.errors import CorruptionError, StorageError, UnsupportedError
from neve.index.cache import BucketCache
from neve.index.current_root import property_of
from neve.index.files import list_files
from neve.index.root import read_root

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from neve.index.indexed_table import Mirror

logger = logging.getLogger(__name__)

GRACE_SECONDS = 3600.0
"""Longer than a merge takes from the first shard it writes to its commit."""


def unreferenced(
    files: Mapping[str, int], retained: Mapping[str, Collection[str]], written_before_ms: int
) -> list[str]:
    """Return files that are neither a retained root nor named by one, sorted.

    A shard is written before the root that names it, and a root before the commit that names that:
    so what is younger than any running merge is left alone.

    Args:
        files: what lies in the index's location, each with its time of modification in ms.
        retained: paths of the roots that retained snapshots or the table's properties name, each
            with those of its shards.
        written_before_ms: files written at this time or later stay.
    """
    needed = set(retained)
    needed.update(chain(*retained.values()))
    return sorted(
        path
        for path, modified_ms in files.items()
        if path not in needed and modified_ms < written_before_ms
    )


def remove_unreferenced(mirror: Mirror, grace_seconds: float = GRACE_SECONDS) -> int:
    """Delete files of a mirror's index that no retained root names; return how many.

    Idempotent. While a root that is named cannot be read, nothing is deleted.
    """
    io = mirror.table.io
    try:
        files = list_files(io, mirror.index_location)
    except (UnsupportedError, OSError) as error:
        logger.info("%s: nothing of its index is removed: %s", mirror.name, error)
        return 0
    retained: dict[str, frozenset[str]] = {}
    named = [
        property_of(mirror),
        *(file.statistics_path for file in mirror.table.metadata.statistics),
    ]
    # One small file for each retained snapshot that has an index; most were read before.
    for path in {path for path in named if path in files}:
        try:
            retained[path] = _shards_of(io, path)
        except (CorruptionError, StorageError) as error:
            logger.warning("%s: nothing of its index is removed: %s", mirror.name, error)
            return 0
    doomed = unreferenced(files, retained, int((time.time() - grace_seconds) * 1000))
    for path in doomed:
        with suppress(OSError):
            io.delete(path)
    return len(doomed)


# The shards that each root names; roots never change. Each counts as one.
_shards = BucketCache(16 * 1024)


def _shards_of(io: FileIO, path: str) -> frozenset[str]:
    def load() -> tuple[frozenset[str], int]:
        return frozenset(shard.path for shard in read_root(io, path).shards), 1

    shards: frozenset[str] = _shards.get(path, load)
    return shards
