"""What Spark says about a statement it refuses, without Java's stack."""

from __future__ import annotations

import re
from collections.abc import Container

from pyspark.errors import PySparkException

from neve.errors import CatalogError, Code, NeveError, SqlError
from neve.lake import jvm
from neve.lake.identifier import Identifier, parse_identifier

_NO_SUCH_TABLE = "TABLE_OR_VIEW_NOT_FOUND"

# What Java calls the faults that `neve.lake.faults` tells apart in Python. The first that fits any
# cause wins: a store's refusal is a network fault only if nothing more exact is known.
_FAULTS = (
    (Code.CERTIFICATE, r"SSLHandshakeException|SSLPeerUnverified|CertPathValidator|PKIX"),
    (Code.LOCKED, r"SQLITE_BUSY|SQLITE_LOCKED"),
    (Code.REFUSED, r"NotAuthorizedException|ForbiddenException|password authentication failed"),
    (Code.STORAGE, r"awssdk\.services\.s3|hadoop\.(fs|security)\.|java\.nio\.file\."),
    (Code.UNREACHABLE, r"ConnectException|UnknownHost|NoHttpResponse|terminating connection"),
)
_HINTS = {
    Code.CERTIFICATE: "add the certificate's authority to Java's trust store",
    Code.LOCKED: "wait for the other process to finish",
    Code.REFUSED: "check the catalog's credentials; they worked when the lake was opened",
    Code.STORAGE: "check catalog.warehouse, the storage section and the permissions there",
    Code.UNREACHABLE: "check that the catalog's server still runs",
}
_JAVA_CLASS = re.compile(r"^(?:\w+\.)+[\w$]+: (?=\S)")


def missing_relation(error: Exception, catalogs: Container[str]) -> Identifier | None:
    """Return the table that a statement named and no catalog has, without its catalog's name."""
    if not isinstance(error, PySparkException) or error.getCondition() != _NO_SUCH_TABLE:
        return None
    identifier = parse_identifier((error.getMessageParameters() or {})["relationName"])
    return identifier[1:] if len(identifier) > 1 and identifier[0] in catalogs else identifier


def explain(error: Exception) -> NeveError:
    """Turn what Spark raised into one line of its own words."""
    causes = jvm.messages(error)
    if isinstance(error, PySparkException) and error.getCondition():
        return SqlError(_own_words(error))
    code = _fault(causes)
    return CatalogError(
        f"Spark failed: {_JAVA_CLASS.sub('', causes[-1])}",
        hint=_HINTS.get(code, "run again with -v for Spark's own log"),
        code=code,
        retryable=code in (Code.LOCKED, Code.UNREACHABLE),
    )


def _fault(causes: list[str]) -> Code:
    found = (code for code, pattern in _FAULTS if re.search(pattern, "\n".join(causes)))
    return next(found, Code.CATALOG)


def _own_words(error: PySparkException) -> str:
    """Keep the message with its line and column; drop the echoed statement and the plan."""
    kept = []
    for line in str(error).splitlines():
        if line.startswith(("== SQL", "JVM stacktrace", "'", "+-")):
            break
        kept.append(line.strip().rstrip(";"))
    return " ".join(filter(None, kept))
