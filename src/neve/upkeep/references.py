"""Which files in another table's location the tables of all configured catalogs reference.

What a table's manifests name decides, not where its properties say that it writes: a property may
have been unset since, and a file may have been added from anywhere.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from neve.errors import UnsupportedError
from neve.lake.expiry import reading
from neve.lake.json_table import json_table
from neve.lake.metadata_json import MetadataJson, require_readable
from neve.lake.paths import store_path
from neve.lake.profile import profile_named
from neve.lake.reachable_files import ReachableFiles

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.table_ref import TableRef

logger = logging.getLogger(__name__)

# A property that names a place: others quote addresses in other texts.
_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:/")


@dataclass(frozen=True)
class _ReadTable:
    """What was read of one table.

    Args:
        metadata_file: that it was at; None: its catalog does not list that.
        damage: why not everything could be read; `stores` are then those that it certainly uses,
            None if nothing is known of it.
    """

    metadata_file: str | None
    files: ReachableFiles
    damage: str = ""
    stores: frozenset[str] | None = None


class References:
    """Reads the manifests of tables, each once, and keeps what lies in another table's location.

    In memory are some 100 bytes for each manifest, and 8 for each file of the latter kind.

    Args:
        locations: the directories of all tables, each with those whose location it is.
    """

    def __init__(self, lake: Lake, locations: Mapping[str, Iterable[TableRef]]) -> None:
        self._lake = lake
        self.locations = {location: frozenset(refs) for location, refs in locations.items()}
        self._tables: dict[TableRef, _ReadTable] = {}

    def read(
        self,
        tables: Mapping[TableRef, str | None],
        but: TableRef,
        stop: threading.Event | None = None,
        *,
        anew: bool = False,
    ) -> None:
        """Read the tables that were not read yet, until `stop` is set; raises of no table.

        Args:
            tables: by the metadata file that each is at; None: the catalog does not list that.
            but: the table that asks, which knows its own files.
            anew: read what is new of tables that have changed, too.
        """
        for ref in self._tables.keys() - tables.keys():
            del self._tables[ref]
        for ref, metadata_file in tables.items():
            known = self._tables.get(ref)
            is_current = known and metadata_file and known.metadata_file == metadata_file
            if ref != but and (known is None or (anew and (known.damage or not is_current))):
                if stop is not None and stop.is_set():
                    return
                self._tables[ref] = self._read_table(ref, metadata_file, known)

    def damage(self, location: str, but: TableRef) -> str:
        """Say which other table cannot be read completely and may need files of a location."""
        store = store_path(location).store
        for ref, table in self._tables.items():
            if table.damage and ref != but and (table.stores is None or store in table.stores):
                return (
                    f"table {ref.name}, which cannot be read completely, may need files there: "
                    f"{table.damage}"
                )
        return ""

    def have(self, path: str, but: TableRef) -> bool:
        """Tell whether a table other than this one references a file."""
        return any(
            path in table.files
            for ref, table in self._tables.items()
            if not table.files.is_empty and ref != but
        )

    def _read_table(
        self, ref: TableRef, metadata_file: str | None, known: _ReadTable | None
    ) -> _ReadTable:
        files = known.files if known else ReachableFiles(partial(self._is_in_other, ref))
        stores = frozenset({store_path(metadata_file).store}) if metadata_file else None
        try:
            profile = profile_named(self._lake.settings, ref.catalog)
            table = json_table(profile, self._lake.catalog(ref.catalog), ref.identifier)
            table.refresh()
            require_readable(ref.identifier, table.metadata)
            stores = _stores_of(table.metadata)
            files.add_table(table.metadata, reading(table))
        except Exception as error:  # noqa: BLE001 - of a table that cannot be read nothing is known
            logger.warning("%s: not all of its manifests can be read: %s", ref.name, error)
            return _ReadTable(metadata_file, files, str(error) or type(error).__name__, stores)
        return _ReadTable(table.metadata.metadata_location, files)

    def _is_in_other(self, ref: TableRef, place: str) -> bool:
        """Tell whether a file lies in the location of a table that is not this one."""
        end = place.rfind("/")
        while end > 0:
            owners = self.locations.get(place[: end + 1])
            if owners is not None and owners != {ref}:
                return True
            end = place.rfind("/", 0, end)
        return False


def _stores_of(metadata: MetadataJson) -> frozenset[str]:
    """Return the stores that a table certainly uses, and those that it may write to."""
    lists = (each.get("manifest-list") for each in metadata.snapshots.values())
    paths = {metadata.location, metadata.metadata_location, *filter(None, lists)}
    stores = {store_path(path).store for path in paths}
    for value in metadata.properties.values():
        # Others quote addresses in other texts, or name what is no place for files.
        with suppress(UnsupportedError):
            stores |= {store_path(value).store} if _ADDRESS.match(value) else set()
    return frozenset(stores)
