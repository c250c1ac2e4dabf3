"""Turn what catalogs, databases and file systems raise into errors that say what to do."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pydantic
import requests
import sqlalchemy.exc
from pyiceberg import exceptions as iceberg

from neve.errors import CatalogError, Code, NeveError, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neve.lake.profile import CatalogProfile

_REFUSED_LOGIN = re.compile(
    r"password authentication failed|no password supplied|role .* does not exist|"
    r"permission denied for|no pg_hba\.conf entry",
    re.IGNORECASE,
)
_BAD_CERTIFICATE = re.compile(r"certificate|SSL error|SSLError|handshake", re.IGNORECASE)
_BROKEN_SQLITE = re.compile(r"not a database|malformed|disk image", re.IGNORECASE)
_CLOSED_SQLITE = re.compile(r"unable to open|readonly", re.IGNORECASE)


@contextmanager
def explained(profile: CatalogProfile) -> Iterator[None]:
    """Raise a `NeveError` in place of what a library raises while talking to this catalog.

    Missing namespaces and tables pass through: only the caller knows which names are near.
    """
    try:
        yield
    except (iceberg.NoSuchTableError, iceberg.NoSuchNamespaceError, NeveError):
        raise
    except requests.exceptions.RequestException as error:
        raise _http_fault(profile, error) from error
    except (iceberg.UnauthorizedError, iceberg.ForbiddenError, iceberg.OAuthError) as error:
        raise refused(profile, str(error)) from error
    except iceberg.RESTError as error:
        raise CatalogError(
            f"catalog {profile.name} at {_where(profile)} failed: {_one_line(error)}",
            hint="look at the server's log; the request was not retried",
            retryable=isinstance(error, (iceberg.ServerError, iceberg.ServiceUnavailableError)),
        ) from error
    except pydantic.ValidationError as error:
        raise _not_iceberg(profile, f"no valid {error.title}") from error
    except sqlalchemy.exc.DBAPIError as error:
        raise _database_fault(profile, error) from error
    except OSError as error:
        raise StorageError(
            f"catalog {profile.name}: {error.filename or profile.warehouse}: "
            f"{error.strerror or _one_line(error)}",
            hint="check catalog.uri, catalog.warehouse, the storage section and the permissions",
        ) from error


def refused(profile: CatalogProfile, reason: str) -> CatalogError:
    key = {
        "rest": "catalog.token or catalog.credential",
        "s3tables": "storage.access_key_id and storage.secret_access_key",
    }
    return CatalogError(
        f"catalog {profile.name} at {_where(profile)} refused the credentials: {_one_line(reason)}",
        hint=f"check {key.get(profile.settings.type, 'user and password in catalog.uri')}",
        code=Code.REFUSED,
    )


def unreachable(profile: CatalogProfile, reason: str) -> CatalogError:
    return CatalogError(
        f"catalog {profile.name} at {_where(profile)} cannot be reached: {reason}",
        hint="check catalog.uri, and that the server runs",
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
        return unreachable(profile, "no answer in time")
    if isinstance(error, requests.exceptions.ConnectionError):
        found = re.search(r"\[Errno -?\d+\] ([^'\")]+)", str(error))
        return unreachable(profile, found[1] if found else "the connection broke")
    return _not_iceberg(profile, type(error).__name__)


def _not_iceberg(profile: CatalogProfile, reason: str) -> CatalogError:
    return CatalogError(
        f"catalog {profile.name} at {_where(profile)} gave an answer that is not of an Iceberg "
        f"REST catalog ({reason})",
        hint="check catalog.uri",
    )


def _database_fault(profile: CatalogProfile, error: sqlalchemy.exc.DBAPIError) -> NeveError:
    reason = _one_line(error.orig or error)
    if profile.sqlite_file:
        return _sqlite_fault(profile, reason)
    if _REFUSED_LOGIN.search(reason):
        return refused(profile, reason)
    if _BAD_CERTIFICATE.search(reason):
        return untrusted(profile, reason)
    return unreachable(profile, reason)


def _sqlite_fault(profile: CatalogProfile, reason: str) -> NeveError:
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


def _where(profile: CatalogProfile) -> str:
    uri = profile.settings.uri or profile.pyiceberg_properties().get("uri", "")
    # Never the login that a database address may carry.
    return re.sub(r"//[^/@]*@", "//", uri).partition("?")[0]


def _one_line(error: object) -> str:
    return next(
        (line.strip() for line in str(error).splitlines() if line.strip()), "no reason given"
    )
