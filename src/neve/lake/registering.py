"""Tables of a catalog that take on metadata somebody else has written: any format version, no JVM.

Each write is one attempt and atomic, and raises what `commit_errors.py` says. Metadata is read and
sent as JSON: PyIceberg's model has no row ids, and drops what it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import load_file_io

from neve.errors import CatalogError, Code, UnsupportedError
from neve.lake.catalog import missing_table
from neve.lake.commit_errors import committing
from neve.lake.create import create_namespace
from neve.lake.faults import explained
from neve.lake.json_table import delete_after_commit, read_database_table, swap_document
from neve.lake.metadata_files import with_base_in_log
from neve.lake.metadata_json import MetadataJson
from neve.lake.profile import CatalogProfile, profile_named
from neve.lake.pyiceberg_catalogs import NeveRestCatalog, NeveSqlCatalog
from neve.lake.rest_updates import table_updates

if TYPE_CHECKING:
    from neve.lake.lake import Lake
    from neve.lake.table_ref import TableRef

_WHAT = "registering the table"


class RegisteredTable(Protocol):
    """A name in a catalog, and the metadata that it stands for."""

    def read(self) -> MetadataJson | None:
        """Return the metadata as the catalog has it now; None: there is no such table."""

    def named_file(self) -> str | None:
        """Return the metadata file that the catalog names; None: only the server knows it."""

    def insert(self, metadata_location: str) -> None:
        """Register the table, and make its namespace; refused if there is such a table."""

    def replace(self, base: MetadataJson, metadata_location: str) -> None:
        """Have the table name another metadata file; refused if it is not at `base` any more."""

    def extend(self, base: MetadataJson, document: Mapping[str, Any]) -> None:
        """Bring a table from its metadata `base` to `document`, which has all that `base` has.

        Raises:
            UnsupportedError: the catalog's own rules do not allow it.
        """


def require_registering(lake: Lake, catalog: str) -> None:
    """Refuse a catalog that cannot register a table that exists already. Writes nothing."""
    profile = profile_named(lake.settings, catalog)
    profile.require_catalog("moving tables to a catalog")
    if profile.settings.type == "s3tables":
        raise UnsupportedError(
            f"catalog {catalog} cannot register tables: S3 Tables keeps files of its own only",
            hint="move to a catalog of type sqlite, postgres or rest",
        )
    opened = lake.catalog(catalog)
    if isinstance(opened, NeveRestCatalog) and not opened.can_register():
        raise UnsupportedError(
            f"catalog {catalog} cannot register tables: its server has no endpoint for it",
            hint="move to another catalog",
        )


def registered_table(lake: Lake, ref: TableRef) -> RegisteredTable:
    """Return a name of a catalog, whether or not there is such a table.

    Reading works with every catalog; `require_registering` says which ones can be written to.

    Raises:
        NotFoundError: the name has no namespace, so that no table can have it.
    """
    profile, catalog = profile_named(lake.settings, ref.catalog), lake.catalog(ref.catalog)
    if len(ref.identifier) < 2:
        raise missing_table(profile, catalog, ref.identifier)
    if isinstance(catalog, NeveRestCatalog):
        return _RestTable(profile, catalog, ref)
    if isinstance(catalog, NeveSqlCatalog):
        return _DatabaseTable(profile, catalog, ref)
    raise TypeError(catalog)


def _name_is_taken(ref: TableRef) -> CatalogError:
    return CatalogError(
        f"{ref.name} cannot be registered: a view has that name",
        hint="rename or drop the view",
        code=Code.CONFLICT,
    )


class _DatabaseTable:
    """A table whose row in a database names its metadata file."""

    def __init__(self, profile: CatalogProfile, catalog: NeveSqlCatalog, ref: TableRef) -> None:
        self._profile = profile
        self._catalog = catalog
        self._ref = ref

    def read(self) -> MetadataJson | None:
        with explained(self._profile):
            try:
                return read_database_table(self._catalog, self._ref.identifier)[0]
            except NoSuchTableError:
                return None

    def named_file(self) -> str | None:
        with explained(self._profile):
            return self._catalog.metadata_location(self._ref.identifier)

    def insert(self, metadata_location: str) -> None:
        with explained(self._profile):
            create_namespace(self._catalog, self._ref.identifier[:-1])
        with committing(self._profile, self._ref.name, _WHAT):
            try:
                self._catalog.insert_metadata(self._ref.identifier, metadata_location)
            except TableAlreadyExistsError as error:
                if self.read() is None:
                    raise _name_is_taken(self._ref) from error
                raise CommitFailedException(str(error)) from error

    def replace(self, base: MetadataJson, metadata_location: str) -> None:
        with committing(self._profile, self._ref.name, _WHAT):
            self._catalog.swap_metadata(
                self._ref.identifier, base.metadata_location, metadata_location
            )

    def extend(self, base: MetadataJson, document: Mapping[str, Any]) -> None:
        logged, unneeded = with_base_in_log(base, document)
        io = load_file_io(self._catalog.properties, base.metadata_location)
        with committing(self._profile, self._ref.name, _WHAT):
            swap_document(self._catalog, io, self._ref.identifier, base, logged)
        delete_after_commit(io, self._ref.name, unneeded, "metadata")


class _RestTable:
    """A table of a REST catalog, which writes its metadata files itself."""

    def __init__(self, profile: CatalogProfile, catalog: NeveRestCatalog, ref: TableRef) -> None:
        self._profile = profile
        self._catalog = catalog
        self._ref = ref

    def read(self) -> MetadataJson | None:
        with explained(self._profile):
            try:
                return self._catalog.read_document(self._ref.identifier)[0]
            except NoSuchTableError:
                return None

    def named_file(self) -> str | None:
        return None

    def insert(self, metadata_location: str) -> None:
        namespace = self._ref.identifier[:-1]
        with explained(self._profile):
            # Some servers make no namespace whose parent does not exist.
            for depth in range(1, len(namespace) + 1):
                create_namespace(self._catalog, namespace[:depth])
        with committing(self._profile, self._ref.name, _WHAT):
            try:
                self._catalog.register_metadata(self._ref.identifier, metadata_location)
            except TableAlreadyExistsError as error:
                if self.read() is None:
                    raise _name_is_taken(self._ref) from error
                raise CommitFailedException(str(error)) from error

    def replace(self, base: MetadataJson, metadata_location: str) -> None:
        """Overwrite the registration; the server compares nothing.

        So it is looked at immediately before: a commit in the milliseconds between is lost.
        """
        present = self.read()
        if present is None or present.metadata_location != base.metadata_location:
            raise _changed(self._ref)
        with committing(self._profile, self._ref.name, _WHAT):
            try:
                self._catalog.register_metadata(
                    self._ref.identifier, metadata_location, overwrite=True
                )
            except (TableAlreadyExistsError, NotImplementedError) as error:
                raise UnsupportedError(
                    f"{self._ref.name} cannot be replaced: the server of catalog "
                    f"{self._ref.catalog} registers no table in the place of another",
                    hint="drop the table there first, without purging its files, and move again",
                ) from error

    def extend(self, base: MetadataJson, document: Mapping[str, Any]) -> None:
        requirements, updates = table_updates(base, MetadataJson("", document))
        with committing(self._profile, self._ref.name, _WHAT):
            self._catalog.update_table(self._ref.identifier, requirements, updates)


def _changed(ref: TableRef) -> CatalogError:
    return CatalogError(
        f"{ref.name} was written to while it was replaced",
        hint="run the command again if its present content is not needed",
        code=Code.CONFLICT,
    )
