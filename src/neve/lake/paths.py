"""Where files are."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlparse


def local_path(path: str) -> Path | None:
    """Return a path of this machine's file system, None for any other."""
    parts = urlparse(path)
    if parts.scheme == "":
        return Path(path)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(parts.path)
    return None
