"""Catalogs without a JVM: PyIceberg behind the profile's settings, names that are near."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pydantic
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, ValidationError
from sqlalchemy.exc import DBAPIError

from neve.errors import NotFoundError
from neve.lake.faults import explained
from neve.lake.identifier import Identifier
from neve.lake.metadata_json import unreadable_table
from neve.lake.near_names import missing_namespace_error, missing_table_error
from neve.lake.profile import CatalogProfile
from neve.lake.pyiceberg_catalogs import NeveRestCatalog, NeveSqlCatalog
from neve.lake.timeouts import Timeouts
from neve.lake.warehouse import require_usable_warehouse

if TYPE_CHECKING:
    from pyiceberg.table import Table

# The second is PostgreSQL's, from its own table of types.
_EXISTS_ALREADY = re.compile(r"already exists|pg_type_typname_nsp_index")
_UNSUPPORTED_TYPE = re.compile(r"Unsupported field type: '([^']+)'")


def open_catalog(profile: CatalogProfile) -> Catalog:
    """Connect to a catalog and prove that it answers; an embedded one is made on first use."""
    profile.require_catalog("this")
    require_usable_warehouse(profile)
    with explained(profile):
        if profile.sqlite_file:
            profile.sqlite_file.parent.mkdir(parents=True, exist_ok=True)
        catalog = _load_catalog(profile)
        catalog.list_namespaces()
    return catalog


def _load_catalog(profile: CatalogProfile) -> Catalog:
    """Load a catalog; of two that first use a database at once, the second is refused its tables.

    So it looks again: once for each of the two tables at most.
    """
    for _ in range(2):
        try:
            return _connect(profile)
        except DBAPIError as error:
            if not _EXISTS_ALREADY.search(str(error.orig)):
                raise
    return _connect(profile)


def _connect(profile: CatalogProfile) -> Catalog:
    """Make PyIceberg's catalog by itself, without what its own configuration files may say."""
    settings = profile.settings
    timeouts = Timeouts(settings.connect_timeout_seconds, settings.timeout_seconds)
    kind = NeveSqlCatalog if settings.type in ("sqlite", "postgres") else NeveRestCatalog
    return kind(profile.name, timeouts, **profile.pyiceberg_properties())


def list_tables(
    profile: CatalogProfile, catalog: Catalog, namespace: Identifier | None = None
) -> list[Identifier]:
    """Return every table in a namespace and below it, or in the whole catalog, sorted."""
    with explained(profile):
        try:
            names = [namespace] if namespace else []
            names += _namespaces_below(profile, catalog, namespace or ())
            return sorted({tuple(table) for name in names for table in catalog.list_tables(name)})
        except NoSuchNamespaceError as error:
            known = catalog.list_namespaces()
            raise missing_namespace_error(namespace or (), known) from error


def metadata_files(profile: CatalogProfile, catalog: Catalog) -> dict[Identifier, str | None]:
    """Return every table with the metadata file it is at; None: the catalog does not list that."""
    if not isinstance(catalog, NeveSqlCatalog):
        return dict.fromkeys(list_tables(profile, catalog))
    with explained(profile):
        return catalog.metadata_files()


def load_table(profile: CatalogProfile, catalog: Catalog, identifier: Identifier) -> Table:
    """Load one table.

    Raises:
        NotFoundError: it names the tables that are spelled almost like it.
        UnsupportedError: PyIceberg cannot read it.
    """
    if len(identifier) < 2:
        raise missing_table(profile, catalog, identifier)
    with explained(profile):
        try:
            return read_table(catalog, identifier)
        except (NoSuchTableError, NoSuchNamespaceError) as error:
            raise missing_table(profile, catalog, identifier) from error


def read_table(catalog: Catalog, identifier: Identifier) -> Table:
    """Load one table; errors are PyIceberg's, but for UnsupportedError."""
    with explaining_unreadable(identifier):
        return catalog.load_table(identifier)


@contextmanager
def explaining_unreadable(identifier: Identifier) -> Iterator[None]:
    """Raise UnsupportedError in place of what PyIceberg raises of metadata it cannot read."""
    try:
        yield
    except (ValidationError, pydantic.ValidationError) as error:
        # From a REST server, other invalid answers mean that it is no catalog at all.
        unsupported = _UNSUPPORTED_TYPE.search(str(error))
        if unsupported is None and isinstance(error, pydantic.ValidationError):
            raise
        reason = f"a column has the type {unsupported[1]}" if unsupported else "invalid metadata"
        raise unreadable_table(identifier, reason) from error


def missing_table(
    profile: CatalogProfile, catalog: Catalog, identifier: Identifier
) -> NotFoundError:
    """Say that a table does not exist, with the nearest names that do."""
    return missing_table_error(profile.name, identifier, list_tables(profile, catalog))


def _namespaces_below(
    profile: CatalogProfile, catalog: Catalog, parent: Identifier
) -> list[Identifier]:
    # S3 Tables has one level of namespaces and refuses to be asked for another.
    if parent and profile.settings.type == "s3tables":
        return []
    namespaces: list[Identifier] = []
    for child in catalog.list_namespaces(parent):
        name = tuple(child)
        if name == parent:
            continue
        namespaces.append(name)
        namespaces += _namespaces_below(profile, catalog, name)
    return namespaces
