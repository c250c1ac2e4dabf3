"""Where manifests lie that are made for reading some files of a table."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path


def manifest_directory() -> Path:
    """Return a new directory for the manifests of one read."""
    # What tidies up temporary files may have taken a directory that is days old.
    of_this_process().mkdir(mode=0o700, exist_ok=True)
    return Path(tempfile.mkdtemp(dir=of_this_process()))


@cache
def of_this_process() -> Path:
    """Make a directory that nobody else may read: manifests have values of the table."""
    directory = Path(tempfile.mkdtemp(prefix="neve-manifests-"))
    atexit.register(_remove, directory, os.getpid())
    return directory


def _remove(directory: Path, owner: int) -> None:
    # A forked process ends earlier, and has inherited this.
    if os.getpid() == owner:
        shutil.rmtree(directory, ignore_errors=True)
