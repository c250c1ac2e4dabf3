"""Turn what catalogs, databases and file systems raise into errors that say what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pydantic
import requests
import sqlalchemy.exc
from pyiceberg import exceptions as iceberg

from neve.errors import CatalogError, Code, NeveError
from neve.lake.local_faults import one_line, sqlite_fault, storage_fault
from neve.lake.profile import CatalogProfile

_REFUSED_LOGIN = re.compile(
    r"password authentication failed|no password supplied|role .* does not exist|"
    r"permission denied for|no pg_hba\.conf entry",
    re.IGNORECASE,
)
_QUOTED = re.compile(r'"[^"]*"')
_BAD_CERTIFICATE = re.compile(r"certificate|SSL error|SSLError|handshake", re.IGNORECASE)
# Answers after which the same request may succeed a moment later.
_PASSING_ANSWERS = (
    iceberg.ServerError,
    iceberg.ServiceUnavailableError,
    iceberg.TooManyRequestsError,
)


@contextmanager
def explained(profile: CatalogProfile) -> Iterator[None]:
    """Raise a `NeveError` in place of what a library raises while talking to this catalog.

    Missing namespaces and tables pass through: only the caller knows which names are near.
    """
    try:
        yield
    except (iceberg.NoSuchTableError, iceberg.NoSuchNamespaceError, NeveError):
        raise
    except Exception as error:
        explanation = explain_fault(profile, error)
        if explanation is None:
            raise
        raise explanation from error


def explain_fault(profile: CatalogProfile, error: Exception) -> NeveError | None:
    """Say what an error of a catalog, a database or a file system means; None: it is no such."""
    if isinstance(error, requests.exceptions.RequestException):
        return _http_fault(profile, error)
    if isinstance(error, (iceberg.UnauthorizedError, iceberg.ForbiddenError, iceberg.OAuthError)):
        return refused(profile, str(error))
    if isinstance(error, iceberg.RESTError):
        return CatalogError(
            f"catalog {profile.name} at {_where(profile)} failed: {one_line(error)}",
            hint="look at the server's log; the request was not retried",
            retryable=isinstance(error, _PASSING_ANSWERS),
        )
    if isinstance(error, pydantic.ValidationError):
        return _not_iceberg(profile, f"no valid {error.title}")
    if isinstance(error, sqlalchemy.exc.DBAPIError):
        return _database_fault(profile, error)
    if isinstance(error, OSError):
        return storage_fault(profile, error)
    return None


def refused(profile: CatalogProfile, reason: str) -> CatalogError:
    key = {
        "rest": "catalog.token or catalog.credential",
        "s3tables": "storage.access_key_id and storage.secret_access_key",
    }
    return CatalogError(
        f"catalog {profile.name} at {_where(profile)} refused the credentials: {one_line(reason)}",
        hint=f"check {key.get(profile.settings.type, 'user and password in catalog.uri')}",
        code=Code.REFUSED,
    )


def unreachable(profile: CatalogProfile, reason: str) -> CatalogError:
    return CatalogError(
        f"catalog {profile.name} at {_where(profile)} cannot be reached: {reason}",
        hint=f"check {profile.section}.uri, and that the server runs",
        code=Code.UNREACHABLE,
        retryable=True,
    )


def untrusted(profile: CatalogProfile, reason: str) -> CatalogError:
    return CatalogError(
        f"catalog {profile.name} at {_where(profile)} shows a certificate that is not trusted: "
        f"{reason}",
        hint="name its authority in REQUESTS_CA_BUNDLE and in Java's trust store, or use the "
        "host name the certificate was made for",
        code=Code.CERTIFICATE,
    )


def _http_fault(
    profile: CatalogProfile, error: requests.exceptions.RequestException
) -> CatalogError:
    if isinstance(error, requests.exceptions.SSLError):
        found = re.search(r"certificate verify failed: ([^(\"']+)", str(error))
        return untrusted(profile, found[1].strip() if found else "the TLS handshake failed")
    if isinstance(error, requests.exceptions.Timeout):
        settings = profile.settings
        if isinstance(error, requests.exceptions.ConnectTimeout):
            return unreachable(
                profile, f"no connection within {settings.connect_timeout_seconds:g} s"
            )
        return unreachable(profile, f"no answer within {settings.timeout_seconds:g} s")
    if isinstance(error, requests.exceptions.ConnectionError):
        found = re.search(r"\[Errno -?\d+\] ([^'\")]+)", str(error))
        return unreachable(profile, found[1] if found else "the connection broke")
    return _not_iceberg(profile, type(error).__name__)


def _not_iceberg(profile: CatalogProfile, reason: str) -> CatalogError:
    return CatalogError(
        f"catalog {profile.name} at {_where(profile)} gave an answer that is not of an Iceberg "
        f"REST catalog ({reason})",
        hint=f"check {profile.section}.uri",
    )


def _database_fault(profile: CatalogProfile, error: sqlalchemy.exc.DBAPIError) -> NeveError:
    reason = one_line(error.orig or error)
    if profile.sqlite_file:
        return sqlite_fault(profile, reason)
    # A connection that failed has no code, only a text. Names in it are quoted.
    unnamed = _QUOTED.sub("", reason)
    if _REFUSED_LOGIN.search(unnamed):
        return refused(profile, reason)
    if _BAD_CERTIFICATE.search(unnamed):
        return untrusted(profile, reason)
    return unreachable(profile, reason)


def _where(profile: CatalogProfile) -> str:
    uri = profile.settings.uri or profile.pyiceberg_properties().get("uri", "")
    # Never the login that a database address may carry.
    return re.sub(r"//[^/@]*@", "//", uri).partition("?")[0]
