"""A table that is looked at again and again for the snapshots that are new.

Its metadata has a part for each snapshot, and there may be many. Of a table that has not changed
nothing is parsed; of one that has, the new snapshots become PyIceberg's objects, and only they are
kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.table.metadata import TableMetadataUtil

from neve.errors import UnsupportedError
from neve.lake.catalog import explaining_unreadable
from neve.lake.faults import explained
from neve.lake.json_table import JsonTable, json_table
from neve.lake.trimmed_metadata import TrimmedMetadata, with_history_from

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata

    from neve.lake.identifier import Identifier
    from neve.lake.metadata_json import MetadataJson
    from neve.lake.profile import CatalogProfile


class WatchedTable:
    """Reads one table; another one that gets its name is read as well."""

    def __init__(self, profile: CatalogProfile, catalog: Catalog, identifier: Identifier) -> None:
        self._profile = profile
        self._catalog = catalog
        self._identifier = identifier
        self._source: JsonTable | None = None
        self._is_complete = False
        self._trimmed = TrimmedMetadata()
        self._last: tuple[MetadataJson, TableMetadata] | None = None

    def refresh(self) -> None:
        """Ask the catalog anew. Raises NotFoundError."""
        if self._source is None:
            self._read_all()
            return
        before = self._source.metadata
        self._source = self._source.renewed()
        if self._source.metadata is not before:
            self._is_complete = True

    @property
    def io(self) -> FileIO:
        """Reads the table's files."""
        return self._read.io

    @property
    def uuid(self) -> str:
        """What tells the table from another one of its name. Raises UnsupportedError."""
        uuid = self._read.metadata.document.get("table-uuid")
        if uuid is None:
            raise UnsupportedError(
                f"{'.'.join(self._identifier)} has no table-uuid, as format version 1 allows it, "
                "so that it cannot be told from another table of its name",
                hint="make a table of format version 2 of it: CREATE TABLE … AS SELECT",
            )
        return str(uuid)

    def since(self, snapshot_id: int | None) -> TableMetadata:
        """Return the table with those snapshots of `main` that begin with one, and no other ref.

        With all snapshots and refs if there is no such one in the history of `main`, or it is None.

        Raises:
            NotFoundError: the table was dropped meanwhile.
            UnsupportedError: PyIceberg cannot read it.
        """
        trimmed = None
        if snapshot_id is not None:
            trimmed = with_history_from(self._read.metadata, snapshot_id)
        if trimmed is None and not self._is_complete:
            self._read_all()
            return self.since(snapshot_id)
        if trimmed is not None:
            self._is_complete = self._is_complete and trimmed is self._read.metadata
            self._read.metadata = trimmed
        metadata = self._read.metadata
        last = self._last
        if last is None or last[0] is not metadata:
            with explained(self._profile), explaining_unreadable(self._identifier):
                last = self._last = (metadata, self._parse(metadata))
        return last[1]

    def _parse(self, metadata: MetadataJson) -> TableMetadata:
        if self._is_complete:
            return TableMetadataUtil.parse_obj(dict(metadata.document))
        return self._trimmed.parse_with(metadata, metadata.document["snapshots"])

    def _read_all(self) -> None:
        source = json_table(self._profile, self._catalog, self._identifier)
        source.refresh()
        self._source, self._is_complete = source, True

    @property
    def _read(self) -> JsonTable:
        if self._source is None:
            raise RuntimeError("the table was not read yet")
        return self._source
