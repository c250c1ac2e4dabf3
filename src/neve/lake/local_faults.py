"""What errors of SQLite and of files mean; apart from `faults.py`, which loads every client."""

from __future__ import annotations

import re

from neve.errors import CatalogError, Code, NeveError, StorageError
from neve.lake.profile import CatalogProfile

_BROKEN_SQLITE = re.compile(r"not a database|malformed|disk image", re.IGNORECASE)
_CLOSED_SQLITE = re.compile(r"unable to open|readonly", re.IGNORECASE)
_PASSING_STORE = re.compile(
    r"AWS Error (NETWORK_CONNECTION|SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|"
    r"REQUEST_TIMEOUT|THROTTLING)|HTTP status code: 5\d\d|timed out|timeout",
    re.IGNORECASE,
)


class PassingStoreError(OSError):
    """A store failed, or did not answer, in a way that may pass."""


def sqlite_fault(profile: CatalogProfile, reason: str) -> NeveError:
    """Say what SQLite's message means for the file of a catalog."""
    file = profile.sqlite_file
    if "locked" in reason:
        return CatalogError(
            f"the catalog file {file} is locked by another process",
            hint="wait for it to finish, or find it with: fuser " + str(file),
            code=Code.LOCKED,
            retryable=True,
        )
    if _BROKEN_SQLITE.search(reason):
        return CatalogError(
            f"the catalog file {file} is corrupt: {reason}",
            hint="restore it from a backup; the tables' own files are not touched",
        )
    if _CLOSED_SQLITE.search(reason):
        return StorageError(
            f"the catalog file {file} cannot be opened for writing: {reason}",
            hint="check the directory and its permissions, or set catalog.uri",
        )
    return CatalogError(f"the catalog file {file} cannot be used: {reason}")


def storage_fault(profile: CatalogProfile, error: OSError) -> StorageError:
    """Say which file or store of a catalog failed, and how."""
    return StorageError(
        f"catalog {profile.name}: {error.filename or profile.warehouse}: "
        f"{error.strerror or one_line(error)}",
        hint=f"check {profile.section}.uri, {profile.section}.warehouse, the storage section and "
        "the permissions",
        retryable=isinstance(error, PassingStoreError)
        or _PASSING_STORE.search(str(error)) is not None,
    )


def one_line(error: object) -> str:
    return next(
        (line.strip() for line in str(error).splitlines() if line.strip()), "no reason given"
    )
