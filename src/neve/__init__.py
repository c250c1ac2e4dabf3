"""Neve: loose data in, clean Apache Iceberg tables out."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from neve.errors import NeveError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from neve.api import OpenLake
    from neve.config import Settings

__version__ = version("neve")
__all__ = ["NeveError", "__version__", "open"]


def open(  # noqa: A001 - neve.open, as in gzip
    config: str | Path | Settings | None = None,
    *,
    progress: Callable[[str], None] | None = None,
) -> OpenLake:
    """Open a lake: from a file, from settings, or (with none of them) the embedded default.

    Args:
        config: without it, `$NEVE_CONFIG`, then `./neve.yaml`, then the built-in defaults.
        progress: gets a line of text for each step of long work; without it, they are logged.
    """
    # Imported here: the command line imports this package, and must not load PyIceberg for --help.
    from neve.api import OpenLake
    from neve.config import Settings, load

    settings = config if isinstance(config, Settings) else load(config).settings
    return OpenLake(settings, progress) if progress else OpenLake(settings)
