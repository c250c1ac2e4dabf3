"""One error tree: everything Neve raises on purpose, and what each code means to a shell."""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType

from neve.masking import mask_logins


class Code(str, Enum):
    """What went wrong, in a word that stays the same when messages are reworded."""

    USAGE = "usage"
    CONFIG = "config"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    CERTIFICATE = "certificate"
    STORAGE = "storage"
    CATALOG = "catalog"
    LOCKED = "locked"
    NOT_FOUND = "not_found"
    UNSUPPORTED = "unsupported"
    SQL = "sql"
    SETUP = "setup"
    CONFLICT = "conflict"
    UNKNOWN_OUTCOME = "unknown_outcome"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    UNAVAILABLE = "unavailable"
    SENDER_RATE = "sender_rate"
    BUSY = "busy"
    TOO_SLOW = "too_slow"
    CORRUPT = "corrupt"
    HELD_LIMIT = "held_limit"
    UNBALANCED = "unbalanced"
    INTERNAL = "internal"


# Exit statuses of the command line: 2 is for what the user typed or configured, 1 for what failed.
EXIT_STATUS = MappingProxyType({Code.USAGE: 2, Code.CONFIG: 2})
EXIT_FAILED = 1
EXIT_INCOMPLETE = 3
EXIT_INTERRUPTED = 130


class NeveError(Exception):
    """A failure with a stable code, what happened, and what to do about it."""

    default_code = Code.CATALOG

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        code: Code | None = None,
        retryable: bool = False,
    ) -> None:
        # Libraries quote addresses, and an address may carry a password.
        message = mask_logins(message)
        super().__init__(message)
        self.code = code or self.default_code
        self.message = message
        self.hint = mask_logins(hint) if hint else None
        self.retryable = retryable

    def __str__(self) -> str:
        """Say what happened and what to do, as logs and tracebacks print it."""
        return f"{self.message} ({self.hint})" if self.hint else self.message

    @property
    def exit_status(self) -> int:
        return EXIT_STATUS.get(self.code, EXIT_FAILED)


class UsageError(NeveError):
    """The call itself makes no sense."""

    default_code = Code.USAGE


class ConfigError(NeveError):
    """The configuration cannot be used as it stands."""

    default_code = Code.CONFIG


class CatalogError(NeveError):
    """A catalog answered with a failure, or not at all."""

    default_code = Code.CATALOG


class StorageError(NeveError):
    """Files or objects cannot be read or written."""

    default_code = Code.STORAGE


class NotFoundError(NeveError):
    """A namespace, table or file that was named does not exist."""

    default_code = Code.NOT_FOUND


class EmptyLakeError(NotFoundError):
    """A namespace or table was named, and the catalog has none at all: perhaps the wrong one."""


class UnsupportedError(NeveError):
    """What was asked is beyond the configured catalog, or this version of Neve."""

    default_code = Code.UNSUPPORTED


class SqlError(NeveError):
    """Spark refused a statement."""

    default_code = Code.SQL


class SetupError(NeveError):
    """This machine lacks something Neve needs: Java, a jar, an extra."""

    default_code = Code.SETUP


class ConflictError(NeveError):
    """Another writer was first; nothing was applied, and fresh metadata shows what to do."""

    default_code = Code.CONFLICT


class UnknownOutcomeError(NeveError):
    """A commit was sent and its answer lost: it may or may not have been applied."""

    default_code = Code.UNKNOWN_OUTCOME


class RequestError(NeveError):
    """A request cannot be taken as it is; `field` names the part of it that is at fault."""

    def __init__(self, message: str, *, hint: str | None = None, field: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field


class MalformedError(RequestError):
    """What was sent cannot be decoded; sending it again will not help."""

    default_code = Code.MALFORMED


class TooLargeError(RequestError):
    """What was sent is over a limit."""

    default_code = Code.TOO_LARGE


class UnavailableError(NeveError):
    """Nothing can be stored right now; the same request may succeed later.

    Args:
        retry_after_seconds: when it may succeed, where that is known.
    """

    default_code = Code.UNAVAILABLE

    def __init__(
        self, message: str, *, hint: str | None = None, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message, hint=hint, retryable=True)
        self.retry_after_seconds = retry_after_seconds


class CorruptionError(NeveError):
    """Stored bytes are not what was written."""

    default_code = Code.CORRUPT


class InternalError(NeveError):
    """A defect, of Neve or of a library; the log says where."""

    default_code = Code.INTERNAL


class HeldLimitError(NeveError):
    """A table holds as many batches as it may; it goes on once a person decided on some."""

    default_code = Code.HELD_LIMIT


class UnbalancedError(NeveError):
    """The counts of a batch do not add up: something was lost or made up, so it is held back."""

    default_code = Code.UNBALANCED
