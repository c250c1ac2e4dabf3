"""Which files of an index nobody needs any more, and their removal."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from neve.errors import CorruptionError, UnsupportedError
from neve.index.root import Root, read_root
from neve.index.state import property_of
from neve.index.stored import list_files

if TYPE_CHECKING:
    from neve.index.mirrors import Mirror

logger = logging.getLogger(__name__)

GRACE_SECONDS = 3600.0
"""Longer than a merge takes from the first shard it writes to its commit."""


def unreferenced(
    files: Mapping[str, int], retained: Mapping[str, Root], written_before_ms: int
) -> list[str]:
    """Return files that are neither a retained root nor named by one, sorted.

    A shard is written before the root that names it, and a root before the commit that names that:
    so what is younger than any running merge is left alone.

    Args:
        files: what lies in the index's location, each with its time of modification in ms.
        retained: the roots that retained snapshots or the table's properties name, by path.
        written_before_ms: files written at this time or later stay.
    """
    needed = set(retained)
    needed.update(shard.path for root in retained.values() for shard in root.shards)
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
    except UnsupportedError as error:
        logger.info("%s: nothing of its index is removed: %s", mirror.name, error)
        return 0
    retained: dict[str, Root] = {}
    named = [
        property_of(mirror),
        *(one.statistics_path for one in mirror.table.metadata.statistics),
    ]
    # One small file for each retained snapshot that has an index.
    for path in {path for path in named if path in files}:
        try:
            retained[path] = read_root(io, path)
        except CorruptionError as error:
            logger.warning("%s: nothing of its index is removed: %s", mirror.name, error)
            return 0
    doomed = unreferenced(files, retained, int((time.time() - grace_seconds) * 1000))
    for path in doomed:
        try:
            io.delete(path)
        except FileNotFoundError:
            continue
    return len(doomed)
