"""What Spark says about a statement it refuses, without Java's stack."""

from __future__ import annotations

import re
from collections.abc import Container

from pyspark.errors import PySparkException

from neve.errors import CatalogError, Code, NeveError, NotFoundError, SqlError, StorageError
from neve.lake import jvm
from neve.lake.identifier import Identifier, parse_identifier

# What tells one Java failure from another, the most certain first.
_JAVA_FAULTS: tuple[tuple[re.Pattern[str], type[NeveError], Code, str], ...] = (
    (
        re.compile(
            r"FileNotFoundException|NoSuchFileException|NoSuchKeyException|"
            r"iceberg\.exceptions\.NotFoundException"
        ),
        StorageError,
        Code.STORAGE,
        "if snapshots expired while it was read, run it again; else the table is damaged",
    ),
    (
        re.compile(r"SSLHandshakeException|PKIX|SSLPeerUnverified|CertPathValidator"),
        CatalogError,
        Code.CERTIFICATE,
        "add the server's authority to Java's trust store",
    ),
    (
        re.compile(r"NotAuthorizedException|ForbiddenException|password authentication failed"),
        CatalogError,
        Code.REFUSED,
        "check the credentials of the catalog; try: neve config check",
    ),
    (
        re.compile(
            r"awssdk\.services\.s3|hadoop\.(fs|security)\.|java\.nio\.file\.|Failed to create file|"
            r"Permission denied"
        ),
        StorageError,
        Code.STORAGE,
        "check catalog.warehouse, the storage section and the permissions there",
    ),
    (
        re.compile(
            r"ConnectException|UnknownHost|NoHttpResponse|HttpHostConnect|terminating connection|"
            r"SocketTimeoutException|ConnectTimeout|connection attempt failed|"
            r"connection has been closed"
        ),
        CatalogError,
        Code.UNREACHABLE,
        "check that the server runs; try: neve config check",
    ),
    (
        re.compile(r"SQLITE_BUSY|SQLITE_LOCKED"),
        CatalogError,
        Code.LOCKED,
        "another process holds the catalog file; wait for it to finish",
    ),
    (
        re.compile(r"NoSuch(Namespace|Table)Exception"),
        NotFoundError,
        Code.NOT_FOUND,
        "run: neve tables",
    ),
    (re.compile(r"AlreadyExistsException"), SqlError, Code.SQL, "choose another name"),
)
# What may succeed a moment later: an overloaded server, a store that did not answer in time.
_PASSING = re.compile(
    r"Service(Unavailable|Failure)Exception|Status Code: (5\d\d|429)|SlowDown|SdkClientException|"
    r"timed out"
)
# Names of files in a message say nothing of what went wrong.
_FILE = re.compile(r"(?:\b[a-z][a-z0-9+.-]*:|(?<!\S))/\S*")
_NO_SUCH_TABLE = "TABLE_OR_VIEW_NOT_FOUND"


def missing_relation(error: Exception, catalogs: Container[str]) -> Identifier | None:
    """Return the table that a statement named and no catalog has, without its catalog's name."""
    if not isinstance(error, PySparkException) or error.getCondition() != _NO_SUCH_TABLE:
        return None
    identifier = parse_identifier((error.getMessageParameters() or {})["relationName"])
    return identifier[1:] if len(identifier) > 1 and identifier[0] in catalogs else identifier


def explain(error: Exception) -> NeveError:
    """Turn what Spark raised into one line of its own words."""
    if isinstance(error, PySparkException) and error.getCondition():
        return SqlError(_own_words(error))
    causes = jvm.messages(error)
    unnamed = [_FILE.sub("", cause) for cause in causes]
    for telling, kind, code, hint in _JAVA_FAULTS:
        for cause, text in zip(causes, unnamed, strict=True):
            if telling.search(text):
                retryable = code in (Code.LOCKED, Code.UNREACHABLE) or bool(_PASSING.search(text))
                return kind(_without_class(cause), code=code, hint=hint, retryable=retryable)
    return CatalogError(
        f"Spark failed: {_without_class(causes[-1])}",
        hint="run again with -v for Spark's own log",
        retryable=any(map(_PASSING.search, unnamed)),
    )


def _without_class(cause: str) -> str:
    return re.sub(r"^([a-z]\w*\.)+[A-Z][\w$]*(: |$)", "", cause) or cause


def _own_words(error: PySparkException) -> str:
    """Keep the message with its line and column; drop the echoed statement and the plan."""
    kept = []
    for line in str(error).splitlines():
        if line.startswith(("== SQL", "JVM stacktrace", "'", "+-")):
            break
        kept.append(line.strip().rstrip(";"))
    return " ".join(filter(None, kept))
