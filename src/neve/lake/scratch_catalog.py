"""A table in a catalog of its own that nobody else sees: to try metadata before it is registered.

The catalog is a SQLite file in a temporary directory; the table's files stay in their store, which
is read with the storage settings of the profile that is given.
"""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from neve.config import CatalogSettings
from neve.lake.catalog import open_catalog, read_table
from neve.lake.faults import explained
from neve.lake.identifier import quote_identifier
from neve.lake.metadata_json import MetadataJson
from neve.lake.paths import local_address
from neve.lake.profile import CatalogProfile
from neve.lake.pyiceberg_catalogs import NeveSqlCatalog

if TYPE_CHECKING:
    from pyiceberg.table import Table

_IDENTIFIER = ("neve", "scratch")
_MOST_PLANNED_FILES = 10_000
# Of a catalog's properties, those of its storage.
_STORAGE = ("s3.", "client.", "http-client.", "gcs.", "adls.", "io-impl", "py-io-impl")


@dataclass(frozen=True)
class ScratchTable:
    """A table that only this process sees."""

    profile: CatalogProfile
    catalog: NeveSqlCatalog

    @property
    def quoted(self) -> str:
        """The name for a Spark session that has the profile's settings."""
        return quote_identifier((self.profile.name, *_IDENTIFIER))

    def load(self) -> Table:
        with explained(self.profile):
            return read_table(self.catalog, _IDENTIFIER)


@contextmanager
def scratch_table(
    profile: CatalogProfile, metadata: MetadataJson, *, is_written: bool = True
) -> Iterator[ScratchTable]:
    """Register metadata in a catalog that is removed on exit; the table's files are not.

    Args:
        profile: whose storage the files are in.
        is_written: the metadata file is there; otherwise it is written on this machine, for as
            long as the catalog lives.
    """
    properties = {
        key: value for key, value in profile.settings.properties.items() if key.startswith(_STORAGE)
    }
    with tempfile.TemporaryDirectory(prefix="neve-scratch-") as directory:
        settings = CatalogSettings(
            type="sqlite",
            uri=f"sqlite:///{directory}/catalog.db",
            warehouse=directory,
            properties=properties,
        )
        name = f"neve_scratch_{secrets.token_hex(4)}"
        scratch = CatalogProfile(name, settings, profile.storage)
        location = metadata.metadata_location
        if not is_written:
            file = Path(directory, "00000-scratch.metadata.json")
            file.write_text(json.dumps(dict(metadata.document)))
            location = local_address(file)
        catalog = open_catalog(scratch)
        try:
            if not isinstance(catalog, NeveSqlCatalog):
                raise TypeError(catalog)
            catalog.create_namespace(_IDENTIFIER[:-1])
            catalog.insert_metadata(_IDENTIFIER, location)
            yield ScratchTable(scratch, catalog)
        finally:
            catalog.close()


def read_some(table: Table) -> None:
    """Plan a scan of the current snapshot, and read the first of its rows. Errors are PyIceberg's.

    Of a large table, only its manifest list: PyIceberg keeps a whole plan in memory.
    """
    snapshot = table.current_snapshot()
    if snapshot is None:
        return
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    if int(summary.get("total-data-files", 0)) > _MOST_PLANNED_FILES:
        snapshot.manifests(table.io)
        return
    for _ in table.scan(limit=1).to_arrow_batch_reader():
        break
