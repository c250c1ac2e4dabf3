"""What a catalog has, for those who only look: names and metadata, nothing is made or changed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from neve.errors import NeveError, UnsupportedError
from neve.lake.identifier import Identifier
from neve.lake.local_faults import one_line, sqlite_fault, storage_fault
from neve.lake.metadata_json import MetadataJson, read_metadata_file, require_readable
from neve.lake.near_names import missing_namespace_error, missing_table_error
from neve.lake.paths import store_path
from neve.lake.profile import SQLITE_WAIT_SECONDS, CatalogProfile

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

Loaded = dict[Identifier, "MetadataJson | UnsupportedError | None"]


class MetadataReader(Protocol):
    """Lists the tables of a catalog and reads their metadata."""

    def list_tables(self, namespace: Identifier | None = None) -> list[Identifier]:
        """Return every table in a namespace and below it, or in the whole catalog, sorted.

        Raises:
            NotFoundError: there is no such namespace; it names those that are near.
        """

    def metadata_files(self) -> dict[Identifier, str | None]:
        """Return every table with the metadata file it is at; None: the catalog lists no such."""

    def read(self, identifier: Identifier) -> MetadataJson:
        """Read the metadata of one table.

        Raises:
            NotFoundError: it names the tables that are spelled almost like it.
            UnsupportedError: PyIceberg cannot read it.
        """

    def read_document(self, identifier: Identifier) -> MetadataJson:
        """Read the metadata of one table, whatever types its columns have. Raises as `read`."""

    def read_all(self, identifiers: Iterable[Identifier]) -> Loaded:
        """Read many tables, whatever types their columns have.

        Returns:
            None for one that vanished meanwhile, or is unreadable; an error where that says why.
        """

    def may_have_views(self) -> bool:
        """Say whether a name that is no table may be a view, which only Spark reads."""


def open_reader(profile: CatalogProfile, connect: Callable[[], Catalog]) -> MetadataReader:
    """Read an embedded catalog directly, and any other through PyIceberg.

    Args:
        connect: makes the PyIceberg catalog; called only where it is needed.
    """
    file = profile.sqlite_file
    if file and profile.local_warehouse and not profile.settings.properties:
        return EmbeddedReader(profile, file, connect)
    return CatalogReader(profile, connect)


class CatalogReader:
    """Reads through PyIceberg: any catalog, any storage."""

    def __init__(self, profile: CatalogProfile, connect: Callable[[], Catalog]) -> None:
        self._profile = profile
        self._connect = connect

    def list_tables(self, namespace: Identifier | None = None) -> list[Identifier]:
        from neve.lake.catalog import list_tables

        return list_tables(self._profile, self._connect(), namespace)

    def metadata_files(self) -> dict[Identifier, str | None]:
        from neve.lake.catalog import metadata_files

        return metadata_files(self._profile, self._connect())

    def read(self, identifier: Identifier) -> MetadataJson:
        from neve.lake.catalog import load_table

        return as_json(load_table(self._profile, self._connect(), identifier))

    def read_document(self, identifier: Identifier) -> MetadataJson:
        from neve.lake.json_table import read_document

        metadata = read_document(self._profile, self._connect(), identifier)
        require_readable(identifier, metadata)
        return metadata

    def read_all(self, identifiers: Iterable[Identifier]) -> Loaded:
        from neve.lake.catalog import load_tables

        tables = load_tables(self._profile, self._connect(), identifiers)
        loaded: Loaded = {}
        for name, table in tables.items():
            if isinstance(table, UnsupportedError):
                loaded[name] = _of_any_type(self, name, table)
            else:
                loaded[name] = None if table is None else as_json(table)
        return loaded

    def may_have_views(self) -> bool:
        return True


def _of_any_type(
    reader: MetadataReader, identifier: Identifier, error: UnsupportedError
) -> MetadataJson | UnsupportedError:
    """Read a table that PyIceberg refuses for a column's type, such as VARIANT: Spark reads it."""
    try:
        return reader.read_document(identifier)
    except NeveError:
        return error


def as_json(table: Table) -> MetadataJson:
    """Return the metadata that PyIceberg has of a table."""
    from pyiceberg.typedef import IcebergBaseModel

    # Not by its own method, which refuses format version 3.
    document = IcebergBaseModel.model_dump_json(table.metadata)
    return MetadataJson(table.metadata_location, json.loads(document))


class EmbeddedReader:
    """Reads a catalog in a SQLite file, and metadata on local disk, with Python's own modules.

    A table of it that lies elsewhere is read through PyIceberg. A file that does not exist is a
    catalog without tables: reading makes nothing.
    """

    def __init__(self, profile: CatalogProfile, file: Path, connect: Callable[[], Catalog]) -> None:
        self._profile = profile
        self._file = file
        self._through_pyiceberg = CatalogReader(profile, connect)

    def list_tables(self, namespace: Identifier | None = None) -> list[Identifier]:
        tables = sorted(self._metadata_locations())
        if namespace is None:
            return tables
        below = [table for table in tables if table[:-1][: len(namespace)] == namespace]
        if not below:
            namespaces = self._namespaces()
            if not any(name[: len(namespace)] == namespace for name in namespaces):
                raise missing_namespace_error(namespace, sorted({name[:1] for name in namespaces}))
        return below

    def metadata_files(self) -> dict[Identifier, str | None]:
        return dict(self._metadata_locations())

    def read(self, identifier: Identifier) -> MetadataJson:
        location = self._location(identifier)
        with self._explained():
            return self._read_file(identifier, location)

    def read_document(self, identifier: Identifier) -> MetadataJson:
        location = self._location(identifier)
        if not store_path(location).is_local:
            return self._through_pyiceberg.read_document(identifier)
        with self._explained():
            return read_metadata_file(identifier, location, any_type=True)

    def _location(self, identifier: Identifier) -> str:
        locations = self._metadata_locations()
        if identifier not in locations:
            raise missing_table_error(self._profile.name, identifier, sorted(locations))
        return locations[identifier]

    def read_all(self, identifiers: Iterable[Identifier]) -> Loaded:
        locations = self._metadata_locations()
        loaded: Loaded = {}
        for identifier in identifiers:
            try:
                loaded[identifier] = self._read_file(identifier, locations[identifier])
            except UnsupportedError as error:
                loaded[identifier] = _of_any_type(self, identifier, error)
            except (LookupError, OSError):
                loaded[identifier] = None
        return loaded

    def may_have_views(self) -> bool:
        rows = self._select("SELECT * FROM iceberg_tables WHERE catalog_name = ?")
        return any(dict(row).get("iceberg_type") == "VIEW" for row in rows)

    def _read_file(self, identifier: Identifier, location: str) -> MetadataJson:
        if store_path(location).is_local:
            return read_metadata_file(identifier, location)
        return self._through_pyiceberg.read(identifier)

    def _metadata_locations(self) -> dict[Identifier, str]:
        rows = self._select("SELECT * FROM iceberg_tables WHERE catalog_name = ?")
        return {
            (*row["table_namespace"].split("."), row["table_name"]): row["metadata_location"]
            for row in rows
            # The oldest layout lacks the column; such a catalog has no views.
            if dict(row).get("iceberg_type") in (None, "TABLE")
        }

    def _namespaces(self) -> list[Identifier]:
        rows = self._select(
            "SELECT namespace FROM iceberg_namespace_properties WHERE catalog_name = ?"
        )
        namespaces = {tuple(row["namespace"].split(".")) for row in rows}
        return sorted(namespaces | {table[:-1] for table in self._metadata_locations()})

    def _select(self, statement: str) -> list[sqlite3.Row]:
        with self._explained():
            try:
                self._file.stat()
                # Never creates the file. Not mode=ro: what a killed writer left is rolled back.
                address = f"{self._file.absolute().as_uri()}?mode=rw"
                with closing(sqlite3.connect(address, SQLITE_WAIT_SECONDS, uri=True)) as database:
                    database.row_factory = sqlite3.Row
                    return database.execute(statement, (self._profile.name,)).fetchall()
            except FileNotFoundError:
                return []
            except sqlite3.OperationalError as error:
                # Another process is making the catalog just now.
                if "no such table" in str(error):
                    return []
                raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise sqlite_fault(self._profile, one_line(error)) from error
        except OSError as error:
            raise storage_fault(self._profile, error) from error
