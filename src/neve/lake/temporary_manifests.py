"""Where manifests lie that are made for reading some files of a table."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path


class TemporaryManifests:
    """The manifests of some reads, which go when nobody needs their rows any more.

    Spark plans when rows are asked for, so that they must stay until then.
    """

    def __init__(self) -> None:
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the manifests of what is read in the block."""
        token = _manifests_of.set(self)
        try:
            yield
        finally:
            _manifests_of.reset(token)

    def remove(self) -> None:
        if self._directory is not None:
            self._directory.cleanup()
            self._directory = None

    def directory(self) -> Path:
        if self._directory is None:
            # Only this user may look: bounds of columns are values of the table.
            self._directory = tempfile.TemporaryDirectory(prefix="neve-manifests-")
        return Path(tempfile.mkdtemp(dir=self._directory.name))


# Unless somebody says when they can go, manifests stay until this process ends.
_of_the_process = TemporaryManifests()
_manifests_of: ContextVar[TemporaryManifests] = ContextVar("manifests_of")


def manifest_directory() -> Path:
    """Return a new directory for the manifests of one read."""
    return _manifests_of.get(_of_the_process).directory()
