"""Where manifests lie that are made for reading some files of a table."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path


class TemporaryManifests:
    """The manifests of some reads, which go when nobody needs their rows any more.

    Spark plans when rows are asked for, so that they must stay until then.
    """

    def __init__(self) -> None:
        self._directories: list[Path] = []

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the manifests of what is read in the block."""
        token = _manifests_of.set(self)
        try:
            yield
        finally:
            _manifests_of.reset(token)

    def new_directory(self) -> Path:
        # What tidies up temporary files may have taken a directory that is days old.
        _of_this_process().mkdir(mode=0o700, exist_ok=True)
        self._directories.append(Path(tempfile.mkdtemp(dir=_of_this_process())))
        return self._directories[-1]

    def remove(self) -> None:
        while self._directories:
            shutil.rmtree(self._directories.pop(), ignore_errors=True)


# Unless somebody says when they can go, manifests stay until this process ends.
_never_removed = TemporaryManifests()
_manifests_of: ContextVar[TemporaryManifests] = ContextVar("manifests_of")


def manifest_directory() -> Path:
    """Return a new directory for the manifests of one read."""
    return _manifests_of.get(_never_removed).new_directory()


@cache
def _of_this_process() -> Path:
    """Make a directory that nobody else may read: manifests have values of the table."""
    directory = Path(tempfile.mkdtemp(prefix="neve-manifests-"))
    atexit.register(_remove, directory, os.getpid())
    return directory


def _remove(directory: Path, owner: int) -> None:
    # A forked process ends earlier, and has inherited this.
    if os.getpid() == owner:
        shutil.rmtree(directory, ignore_errors=True)
