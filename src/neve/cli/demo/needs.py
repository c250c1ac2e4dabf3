"""What the demo needs, asked for before it makes anything: Java, and room on the disk.

It starts Spark first, which fetches the jars, on ports that are free.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from neve.errors import SetupError

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
