"""What a catalog has, for those who only look: names and metadata, nothing is made or changed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Union

from neve.errors import NeveError, NotFoundError, UnsupportedError
from neve.lake.identifier import Identifier, name_of
from neve.lake.local_faults import one_line, sqlite_fault, storage_fault
from neve.lake.metadata_json import (
    MetadataJson,
    read_metadata_file,
    require_readable,
    unreadable_table,
)
from neve.lake.near_names import missing_namespace_error, missing_table_error
from neve.lake.paths import store_path
from neve.lake.profile import SQLITE_WAIT_SECONDS, CatalogProfile
from neve.observe.failures import failure_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

Read = Union["MetadataJson", "NeveError", None]
Loaded = dict[Identifier, Read]
# Each load is a round trip and a small download; the catalog is not to be flooded either.
_LOADS_AT_ONCE = 8


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
            None for one that vanished meanwhile; for one that cannot be read, in whatever way, the
            error, so that it costs no other its turn.
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
        wanted = list(identifiers)
        # Connected here: threads would connect twice.
        self._connect()
        with ThreadPoolExecutor(_LOADS_AT_ONCE) as pool:
            tables = pool.map(lambda name: _read_turn(self, name, self.read), wanted)
            return dict(zip(wanted, tables, strict=True))

    def may_have_views(self) -> bool:
        return True


def _read_turn(
    reader: MetadataReader, identifier: Identifier, read: Callable[[Identifier], MetadataJson]
) -> Read:
    """Read one of many tables, whatever it is like."""
    try:
        try:
            return read(identifier)
        except UnsupportedError as error:
            # PyIceberg refuses it for a column's type, such as VARIANT: Spark reads it.
            with suppress(NeveError):
                return reader.read_document(identifier)
            return error
    except NotFoundError:
        return None
    except Exception as error:  # noqa: BLE001 - it stands in the result
        return failure_of(error, "read", name_of(identifier))


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
        listed = self._profile.as_listed(identifier)
        if listed not in locations:
            raise missing_table_error(self._profile.name, identifier, sorted(locations))
        return locations[listed]

    def read_all(self, identifiers: Iterable[Identifier]) -> Loaded:
        locations = self._metadata_locations()

        def read(identifier: Identifier) -> MetadataJson:
            with self._explained():
                try:
                    return self._read_file(identifier, locations[identifier])
                except FileNotFoundError:
                    # Replaced or dropped since the tables were listed.
                    return self._read_file(identifier, self._location(identifier))

        return {
            name: _read_turn(self, name, read) if name in locations else None
            for name in identifiers
        }

    def may_have_views(self) -> bool:
        rows = self._select("SELECT * FROM iceberg_tables WHERE catalog_name = ?")
        return any(dict(row).get("iceberg_type") == "VIEW" for row in rows)

    def _read_file(self, identifier: Identifier, location: str) -> MetadataJson:
        if not location:
            raise unreadable_table(identifier, "its entry in the catalog names no metadata file")
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
