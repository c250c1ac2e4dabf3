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
    from pyiceberg.table.metadata import TableMetadata

    from neve.lake.identifier import Identifier
    from neve.lake.metadata_json import MetadataJson
    from neve.lake.profile import CatalogProfile


class DocumentTable(Table):
    """A table whose commit compares with the very metadata that was read here.

    Args:
        known: as it was read before. Metadata that has not changed is not parsed again.
    """

    # What the model was made of, and the model. Commits through `source` change what that has.
    parsed: tuple[MetadataJson, TableMetadata]

    def __init__(self, source: JsonTable, known: DocumentTable | None = None) -> None:
        metadata = source.metadata
        if known is not None and known.parsed[0] is metadata:
            model = known.parsed[1]
        else:
            model = TableMetadataUtil.parse_obj(dict(metadata.document))
        super().__init__(
            source.identifier, model, metadata.metadata_location, source.io, source.catalog
        )
        self.source = source
        self.parsed = (metadata, model)


def find_document_table(
    profile: CatalogProfile,
    catalog: Catalog,
    identifier: Identifier,
    known: DocumentTable | None = None,
) -> DocumentTable | None:
    """Load a table once, for reading it and for one commit; None: there is none of that name.

    Args:
        known: as it was loaded before. What has not changed is neither read nor parsed again.

    Raises:
        UnsupportedError: PyIceberg cannot read it.
    """
    try:
        if known is not None:
            source = known.source.renewed()
        else:
            source = json_table(profile, catalog, identifier)
            source.refresh()
    except NotFoundError:
        return None
    with explained(profile), explaining_unreadable(identifier):
        return DocumentTable(source, known)
