"""What an error says of a commit: refused, failed, or unknown. The only place that decides it.

Each case is decided by one question: can the catalog have applied the request? Only an error that
excludes it counts as refused or failed; everything else is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum

import pydantic
import requests
import sqlalchemy.exc
import urllib3.exceptions
from pyiceberg import exceptions as iceberg

from neve.errors import CatalogError, ConflictError, NeveError, NotFoundError, UnknownOutcomeError
from neve.lake.faults import explain_fault
from neve.lake.profile import CatalogProfile


class CommitOutcome(Enum):
    """What is known of a commit that raised."""

    # Nothing was applied, since another writer was first. Fresh metadata shows what to do.
    REFUSED = "refused"
    # Nothing was applied, for another reason, which may pass or not.
    FAILED = "failed"
    # The request was sent, and may have been applied.
    UNKNOWN = "unknown"


# What servers call a bad request, and Java a failed validation, and what is a lost race: another
# worker staged with the same sequence number, our own request came twice, or a snapshot is expired.
_LOST_RACE = re.compile(
    r"older than last sequence number|Snapshot (with id \d+ )?already exists|"
    r"to unknown snapshot|ref with unknown snapshot",
    re.IGNORECASE,
)

# Answers of a REST catalog that exclude that it applied the commit. 408 and all 5xx but 501 do not:
# a gateway gives them for a server that may still be at work.
_NOT_APPLIED = frozenset(
    (401, 403, 404, 405, 406, 410, 411, 413, 414, 415, 419, 422, 429, 431, 501)
)
_CONFLICT = frozenset((409, 412))


def outcome_of(error: Exception, profile: CatalogProfile) -> CommitOutcome:
    """Classify what `commit_table` of a PyIceberg catalog raised."""
    if isinstance(error, iceberg.CommitFailedException):
        return CommitOutcome.REFUSED
    status = _http_status(error)
    if status is not None:
        return _outcome_of_answer(status, str(error))
    if isinstance(error, requests.exceptions.RequestException):
        return CommitOutcome.FAILED if _was_not_sent(error) else CommitOutcome.UNKNOWN
    if isinstance(error, sqlalchemy.exc.DBAPIError):
        return _outcome_in_database(error, is_sqlite=profile.sqlite_file is not None)
    # An answer that was cut, or is not a catalog's. A ValueError, but nobody refused anything.
    if isinstance(error, pydantic.ValidationError | iceberg.RESTError):
        return CommitOutcome.UNKNOWN
    if isinstance(error, ValueError):
        # PyIceberg checks an update before it sends or stores anything.
        return CommitOutcome.REFUSED if _LOST_RACE.search(str(error)) else CommitOutcome.FAILED
    if isinstance(error, OSError):
        # With a database, PyIceberg writes the metadata file first, and touches no file after it.
        is_database = profile.settings.type in ("sqlite", "postgres")
        return CommitOutcome.FAILED if is_database else CommitOutcome.UNKNOWN
    if isinstance(error, iceberg.NoSuchTableError | iceberg.NoSuchNamespaceError):
        return CommitOutcome.FAILED
    return CommitOutcome.UNKNOWN


def _http_status(error: Exception) -> int | None:
    # PyIceberg raises its own exceptions from the one that has the answer.
    cause = error.__cause__
    if isinstance(cause, requests.exceptions.HTTPError) and cause.response is not None:
        return cause.response.status_code
    return None


def _outcome_of_answer(status: int, text: str) -> CommitOutcome:
    if status in _CONFLICT:
        return CommitOutcome.REFUSED
    if status == 400:
        return CommitOutcome.REFUSED if _LOST_RACE.search(text) else CommitOutcome.FAILED
    return CommitOutcome.FAILED if status in _NOT_APPLIED else CommitOutcome.UNKNOWN


def _was_not_sent(error: requests.exceptions.RequestException) -> bool:
    """Tell whether no connection was made: refused, timed out, or broken off in its handshake."""
    reason = error.args[0] if error.args else None
    if isinstance(reason, urllib3.exceptions.MaxRetryError):
        reason = reason.reason
    if isinstance(reason, urllib3.exceptions.SSLError):
        return "certificate verify failed" in str(reason)
    # The first includes names that are not known, the second connections that timed out.
    unsent = (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)
    return isinstance(reason, unsent)


# Other writers: serialization failure, deadlock, unique violation, lock not available, cancelled.
_PG_CONFLICT = frozenset(("40001", "40P01", "23505", "55P03", "57014"))
# Of these the transaction may outlive the answer: connections, shutdowns, internal errors.
_PG_UNKNOWN = re.compile(r"08...|57P0.|40003|XX...|58...")
_SQLITE_CONFLICT = re.compile(r"is locked|constraint failed")
_SQLITE_FAILED = re.compile(r"readonly|is full|not a database|malformed|unable to open")
_NO_CONNECTION = re.compile(r"^(connection to server .* failed:|could not (connect|translate))")


def _outcome_in_database(error: sqlalchemy.exc.DBAPIError, *, is_sqlite: bool) -> CommitOutcome:
    text = str(error.orig or error)
    code: str | None = getattr(error.orig, "pgcode", None)
    # SQLite's messages quote nothing; PostgreSQL's have names and values in them.
    if code in _PG_CONFLICT or (is_sqlite and _SQLITE_CONFLICT.search(text)):
        return CommitOutcome.REFUSED
    if error.statement is not None:
        # A statement failed before COMMIT was sent: the database rolls its transaction back.
        return CommitOutcome.FAILED
    if code is not None:
        return CommitOutcome.UNKNOWN if _PG_UNKNOWN.fullmatch(code) else CommitOutcome.FAILED
    is_failed = _SQLITE_FAILED.search(text) if is_sqlite else _NO_CONNECTION.match(text)
    return CommitOutcome.FAILED if is_failed else CommitOutcome.UNKNOWN


# What a Java exception of Iceberg, of a driver or of a store says, by its class and its text. The
# first cause that is known decides, from the outermost on: that one says what the commit came to.
_JAVA_OUTCOMES: tuple[tuple[re.Pattern[str], CommitOutcome], ...] = (
    (re.compile(r"[\w.]*\.CommitStateUnknownException\b"), CommitOutcome.UNKNOWN),
    (
        re.compile(
            r"[\w.]*\.(CommitFailedException|AlreadyExistsException)\b|"
            r"org\.apache\.iceberg\.exceptions\.ValidationException\b"
        ),
        CommitOutcome.REFUSED,
    ),
    (
        re.compile(rf"[\w.]*\.BadRequestException\b.*({_LOST_RACE.pattern})", re.IGNORECASE),
        CommitOutcome.REFUSED,
    ),
    # Of drivers: the catalog's one statement was not carried out.
    (
        re.compile(
            r"[\w.]*\.SQLiteException: \[SQLITE_(BUSY|LOCKED|CONSTRAINT)|"
            r"[\w.]*\.PSQLException: ERROR: (could not serialize|deadlock detected|duplicate key|"
            r"canceling statement|could not obtain lock)"
        ),
        CommitOutcome.REFUSED,
    ),
    (
        re.compile(
            r"[\w.]*\.SQLiteException: \[SQLITE_(READONLY|FULL|CORRUPT|NOTADB|CANTOPEN)|"
            r"[\w.]*\.PSQLException: (ERROR: (cannot execute|permission denied)|"
            r"This connection has been closed|Connection to .* refused|"
            r"The connection attempt failed)"
        ),
        CommitOutcome.FAILED,
    ),
    # Of a REST catalog: answers that exclude that it was applied, and connections never made.
    (
        re.compile(
            r"[\w.]*\.(NotAuthorized|Forbidden|BadRequest|NoSuchTable|NoSuchNamespace)Exception\b|"
            r"java\.lang\.UnsupportedOperationException\b|"
            r"[\w.]*\.RESTException: Unable to process \(code: 4(?!08)\d\d\b|"
            r"[\w.]*\.RESTException: Error occurred while processing (GET|HEAD) request|"
            r"[\w.]*\.(HttpHostConnectException|ConnectTimeoutException|UnknownHostException|"
            r"ConnectException|SSLHandshakeException)\b"
        ),
        CommitOutcome.FAILED,
    ),
    # Of the store, where metadata and manifests are written before the commit is sent.
    (
        re.compile(
            r"software\.amazon\.awssdk\.|[\w.]*\.RuntimeIOException\b|org\.apache\.hadoop\.fs\.|"
            r"java\.nio\.file\."
        ),
        CommitOutcome.FAILED,
    ),
    # Of Spark: the statement or its tasks failed, and the commit was never begun.
    (
        re.compile(
            r"[\w.]*\.(AnalysisException|ParseException)\b|"
            r".*Job aborted due to stage failure|.*Job \d+ cancelled"
        ),
        CommitOutcome.FAILED,
    ),
)


def outcome_of_java(causes: Sequence[str]) -> CommitOutcome:
    """Classify a Java exception by its causes, each as `class: message`, the outermost first."""
    for cause in causes:
        for pattern, outcome in _JAVA_OUTCOMES:
            if pattern.match(cause):
                return outcome
    return CommitOutcome.UNKNOWN


# What catalogs, databases, networks and stores raise. Anything else is a defect, and told as one.
_ERRORS = (
    iceberg.CommitFailedException,
    iceberg.NoSuchTableError,
    iceberg.NoSuchNamespaceError,
    iceberg.RESTError,
    requests.exceptions.RequestException,
    sqlalchemy.exc.DBAPIError,
    NotImplementedError,
    ValueError,
    OSError,
)


def refused(table: str, what: str, reason: str) -> ConflictError:
    return ConflictError(
        f"{table}: {what} was refused: {reason}", hint="it is tried again", retryable=True
    )


def unknown(table: str, what: str, reason: str) -> UnknownOutcomeError:
    return UnknownOutcomeError(
        f"{table}: the outcome of {what} is unknown: {reason}",
        hint=f"nothing is cleaned up; the table shows whether {what} was applied",
        retryable=True,
    )


@contextmanager
def committing(profile: CatalogProfile, table: str, what: str) -> Iterator[None]:
    """Raise what an error of `commit_table`, the only call in the block, means.

    Raises:
        ConflictError: another writer was first; nothing was applied.
        UnknownOutcomeError: the request may have been applied.
        NeveError: nothing was applied, for another reason.
    """
    try:
        yield
    except _ERRORS as error:
        outcome = outcome_of(error, profile)
        if outcome is CommitOutcome.REFUSED:
            raise refused(table, what, _first_line(error)) from error
        if outcome is CommitOutcome.UNKNOWN:
            raise unknown(table, what, f"{type(error).__name__}: {_first_line(error)}") from error
        raise _failure(profile, table, what, error) from error


def _failure(profile: CatalogProfile, table: str, what: str, error: Exception) -> NeveError:
    if isinstance(error, iceberg.NoSuchTableError) or _http_status(error) == 404:
        return NotFoundError(f"table {table} does not exist any more", hint="run: neve tables")
    return explain_fault(profile, error) or CatalogError(
        f"{table}: {what} failed: {_first_line(error)}", hint="see the catalog's log"
    )


def _first_line(error: object) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason")
