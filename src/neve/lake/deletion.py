"""Delete many files of a table: several at once, and what cannot be deleted is logged and left."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import TYPE_CHECKING

from neve.lake.paths import local_path

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

logger = logging.getLogger(__name__)

# Iceberg's own: false forbids everybody to delete files of the table, which others may share.
GC_ENABLED = "gc.enabled"
_AT_ONCE = 16
# Where a URL's path ends, and what Python removes from URLs.
_LOST_IN_URLS = frozenset("?#\t\r\n")


def may_delete_files(properties: Mapping[str, str]) -> bool:
    """Tell whether files of a table may be deleted at all, by its own properties."""
    return properties.get(GC_ENABLED, "true").lower() != "false"


def delete_paths(io: FileIO, table: str, paths: Sequence[str]) -> int:
    """Delete files, the first ones first; return how many are gone. Idempotent.

    A file that does not exist is no error. One in an object store whose name a URL cannot have is
    left: PyIceberg takes a path for a URL, so that `a.parquet#old` would be `a.parquet`.
    """
    if not paths:
        return 0
    with ThreadPoolExecutor(min(_AT_ONCE, len(paths)), "neve-deletes") as pool:
        failures = [each for each in pool.map(_delete, repeat(io), paths) if each is not None]
    if failures:
        logger.warning(
            "%s: %d of %d files could not be deleted: %s",
            table,
            len(failures),
            len(paths),
            failures[0],
        )
    return len(paths) - len(failures)


def _delete(io: FileIO, path: str) -> str | None:
    try:
        local = local_path(path)
        if local is not None:
            local.unlink()
        elif _LOST_IN_URLS & set(path):
            return f"{path}: PyIceberg would take it for another file"
        else:
            io.delete(path)
    except FileNotFoundError:
        return None
    except Exception as error:  # noqa: BLE001 - each store has errors of its own
        return f"{path}: {type(error).__name__}"
    return None
