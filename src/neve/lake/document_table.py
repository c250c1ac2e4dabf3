"""A table in PyIceberg's model that also has its metadata document, for who commits to it later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil

from neve.errors import NotFoundError
from neve.lake.catalog import explaining_unreadable
from neve.lake.faults import explained
from neve.lake.json_table import JsonTable, json_table

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from neve.lake.identifier import Identifier
    from neve.lake.profile import CatalogProfile


class DocumentTable(Table):
    """A table whose commit compares with the very metadata that was read here."""

    def __init__(self, source: JsonTable) -> None:
        metadata = source.metadata
        model = TableMetadataUtil.parse_obj(dict(metadata.document))
        super().__init__(
            source.identifier, model, metadata.metadata_location, source.io, source.catalog
        )
        self.source = source


def find_document_table(
    profile: CatalogProfile, catalog: Catalog, identifier: Identifier
) -> DocumentTable | None:
    """Load a table once, for reading it and for one commit; None: there is none of that name.

    Raises:
        UnsupportedError: PyIceberg cannot read it.
    """
    source = json_table(profile, catalog, identifier)
    try:
        source.refresh()
    except NotFoundError:
        return None
    with explained(profile), explaining_unreadable(identifier):
        return DocumentTable(source)
