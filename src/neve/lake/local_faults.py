"""What errors of SQLite and of files mean; apart from `faults.py`, which loads every client."""

from __future__ import annotations

import re
from dataclasses import dataclass

from neve.errors import CatalogError, Code, NeveError, StorageError
from neve.lake.profile import CatalogProfile

_BROKEN_SQLITE = re.compile(r"not a database|malformed|disk image", re.IGNORECASE)
_CLOSED_SQLITE = re.compile(r"unable to open|readonly", re.IGNORECASE)
# How pyarrow ends an error of S3. What is before it names the file, whose name may be anything.
_ARROW = re.compile(
    r".*\bAWS Error (?P<name>[A-Z0-9_]+|\[code \d+\])(?: \(HTTP status (?P<status>\d{3})\))? "
    r"during \w+ operation(?:: Unable to parse ExceptionName: (?P<code>\w+))?",
    re.DOTALL,
)
_PASSING_STATUSES = frozenset({408, 409, 425, 429})
_NOT_IMPLEMENTED = 501
# Codes of S3 with a status of 4xx that say that a request was damaged or cut on its way, or that an
# upload has ended, perhaps by a request whose answer was lost; and those that pyarrow gives without
# the status.
_PASSING_CODES = frozenset(
    {
        "BadDigest",
        "XAmzContentSHA256Mismatch",
        "IncompleteBody",
        "InternalFailure",
        "NetworkConnection",
        "NoSuchUpload",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
    }
)


@dataclass(frozen=True)
class StoreAnswer:
    """How a store refused a request: the status of HTTP, and S3's code, where they are known."""

    status: int | None = None
    code: str = ""

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed later."""
        status = self.status or 0
        is_servers = status >= 500 and status != _NOT_IMPLEMENTED
        return is_servers or status in _PASSING_STATUSES or self.code in _PASSING_CODES


def arrow_answer(error: OSError) -> StoreAnswer | None:
    """Return what S3 answered to pyarrow, whose errors have only a text; None: it is no store's."""
    match = None if error.errno is not None else _ARROW.match(str(error))
    if match is None:
        return None
    # NO_SUCH_BUCKET is S3's NoSuchBucket.
    code = match["code"] or "".join(word.title() for word in match["name"].split("_"))
    return StoreAnswer(int(match["status"]) if match["status"] else None, code)


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
    answer = arrow_answer(error)
    passing = (PassingStoreError, TimeoutError, ConnectionError)
    return StorageError(
        f"catalog {profile.name}: {error.filename or profile.warehouse}: "
        f"{error.strerror or one_line(error)}",
        hint=f"check {profile.section}.uri, {profile.section}.warehouse, the storage section and "
        "the permissions",
        retryable=answer.may_pass if answer else isinstance(error, passing),
    )


def one_line(error: object) -> str:
    return next(
        (line.strip() for line in str(error).splitlines() if line.strip()), "no reason given"
    )
