"""Neve: loose data in, clean Apache Iceberg tables out."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from neve.errors import NeveError

if TYPE_CHECKING:
    from pathlib import Path

    from neve.api import OpenLake
    from neve.config import Settings

__version__ = version("neve")
__all__ = ["NeveError", "__version__", "open"]


def open(config: str | Path | Settings | None = None) -> OpenLake:  # noqa: A001 - neve.open, as in gzip
    """Open a lake: from a file, from settings, or (with none of them) the embedded default."""
    from neve.api import open_lake

    return open_lake(config)
