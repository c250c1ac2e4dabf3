"""What Spark's Python workers do at each task, and need not do twice."""

from __future__ import annotations

import os
import zipimport
from typing import Any

import pyarrow as pa

_seen: dict[tuple[str, str], tuple[int, int]] = {}
_read_again: Any = zipimport.zipimporter.invalidate_caches


def keep_zip_directories() -> None:
    """Let this worker read the directories of zip archives again only if they have changed.

    At the start of each task PySpark drops all caches of imports, and Python's zipimport then reads
    the directory of pyspark.zip anew, once for each package in it: a tenth of a second, measured,
    where the task itself may take a hundredth. Idempotent.
    """
    zipimport.zipimporter.invalidate_caches = _invalidate  # type: ignore[assignment, method-assign]


def use_system_memory() -> None:
    """Let Arrow allocate with the C library in this process, instead of mimalloc. Idempotent.

    Where large arrays come and go, mimalloc gives their pages back to the system and asks for them
    again: of a consolidation's processor time that was two fifths, measured.
    """
    pa.set_memory_pool(pa.system_memory_pool())


def _invalidate(importer: zipimport.zipimporter) -> None:
    try:
        found = os.stat(importer.archive)  # noqa: PTH116 - at each task, sixteen times
    except OSError:
        _read_again(importer)
        return
    key, now = (importer.archive, importer.prefix), (found.st_mtime_ns, found.st_size)
    if _seen.get(key) != now:
        _read_again(importer)
        _seen[key] = now
