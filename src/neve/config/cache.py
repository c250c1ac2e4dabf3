"""Where what was downloaded once is kept for every later run."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "NEVE_CACHE"


def cache_directory() -> Path:
    """Return $NEVE_CACHE, else the user's cache directory; not yet created."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "neve"
