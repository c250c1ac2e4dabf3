"""Paths in one spelling, with the symbolic links of local directories followed.

A local directory may have several names. Whoever asks whether two tables share files, or whether a
file that was listed is one that a manifest names, must not take two names for two directories.
"""

from __future__ import annotations

import os
from functools import lru_cache

from neve.lake.paths import local_address, object_place, store_path

# Of a million files in a table, most lie beside the one before.
_MOST_DIRECTORIES_KEPT = 16_384
_NO_NAMES = ("", ".", "..")


class ResolvedPlaces:
    """Resolves paths, each directory once; made anew for each look, since links may change."""

    def __init__(self) -> None:
        self._real = lru_cache(_MOST_DIRECTORIES_KEPT)(_real_path)

    def file(self, path: str) -> str:
        """Return where a file is. A link in place of the file itself is a file of its own."""
        place = store_path(path)
        if not place.is_local:
            return object_place(place)
        directory, _, name = place.key.rpartition("/")
        if name in _NO_NAMES:
            return local_address(self._real(place.key))
        return local_address(f"{self._real(directory).rstrip('/')}/{name}")

    def directory(self, path: str) -> str:
        """Return where a directory is; it ends with a slash."""
        place = store_path(path)
        if not place.is_local:
            return object_place(place).rstrip("/") + "/"
        return local_address(f"{self._real(place.key).rstrip('/')}/")


def _real_path(path: str) -> str:
    # Two slashes at the beginning are kept by Python, and mean one.
    return os.path.realpath("/" + path.lstrip("/"))
