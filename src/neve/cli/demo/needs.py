"""What the demo needs, asked for before it starts: Java, the jars, room on the disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from neve.errors import SetupError

if TYPE_CHECKING:
    from neve.config import SparkSettings

# The lake takes 20 MB; Spark's scratch files and the jars take the rest.
_NEEDED_BYTES = 500_000_000


def require_java_and_space(directory: Path) -> None:
    """Refuse to begin without Java, or without room for the lake. Raises SetupError."""
    from neve.lake.java import find_java

    find_java()
    existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < _NEEDED_BYTES:
        raise SetupError(
            f"the disk of {existing} has {free / 1e6:,.0f} MB left, and the demo needs "
            f"{_NEEDED_BYTES / 1e6:,.0f} MB",
            hint="make room, or choose another --dir",
        )


def require_jars(spark: SparkSettings, report: Callable[[str], None]) -> None:
    """Fetch the jars that the cache lacks, before anything else is done. Raises SetupError."""
    from neve.lake.jars import ensure_jars
    from neve.lake.java import find_java

    ensure_jars(find_java(), report, spark.conf.get("spark.jars.ivySettings"))
