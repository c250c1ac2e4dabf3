"""Files of a table's location that no snapshot needs: found first, then deleted in batches.

They come from refused commits, killed tasks, dropped stagings, and expiries that were interrupted.
Nothing is removed that is younger than `upkeep.orphan_age`, nothing of a table that could not be
read completely, nothing outside of the table's own location, and nothing in a location that two
tables share, of this catalog or of a further one that is configured. Hidden files, whose name or
directory begins with `_` or `.`, are left, as Iceberg's own removal leaves them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from neve import failpoints
from neve.errors import NeveError
from neve.lake.deletion import delete_paths
from neve.lake.expiry import GC_ENABLED, may_delete_files, reading
from neve.lake.file_store import FileStore
from neve.lake.json_table import JsonTable, json_table
from neve.lake.metadata_json import MetadataJson
from neve.lake.profile import CatalogProfile, profile_named, profiles
from neve.lake.reachable_files import ReachableFiles, metadata_files
from neve.lake.store_paths import store_path
from neve.lake.table_ref import TableRef
from neve.lake.unreachable import place_of

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.identifier import Identifier
    from neve.lake.stored_files import ListedFile
    from neve.lake.unconfirmed import UnconfirmedWrite

logger = logging.getLogger(__name__)

# More are left for the next search: so many paths take some megabytes.
MOST_AT_ONCE = 100_000
_BATCH = 500


@dataclass(frozen=True)
class Orphan:
    """A file that no snapshot needs."""

    path: str
    size: int
    modified: datetime


@dataclass(frozen=True)
class OrphanPlan:
    """The orphans of one table, as a search found them.

    Args:
        listed: how many files the location has.
        is_complete: whether there are no more than these.
        skipped: why nothing was searched; empty: it was.
    """

    table: str
    table_uuid: str = ""
    orphans: tuple[Orphan, ...] = ()
    listed: int = 0
    is_complete: bool = True
    skipped: str = ""

    @property
    def bytes(self) -> int:
        return sum(orphan.size for orphan in self.orphans)


@dataclass
class RemovedOrphans:
    """What a removal came to; `left` are those that somebody needs by now."""

    files: int = 0
    bytes: int = 0
    left: int = 0
    is_stopped: bool = False


@dataclass
class OrphanSearch:
    """Searches one table, and removes what it found."""

    lake: Lake
    ref: TableRef
    unconfirmed: Iterable[UnconfirmedWrite] = ()
    _reachable: ReachableFiles | None = field(default=None, repr=False)

    def plan(self, older_than: float, most: int = MOST_AT_ONCE) -> OrphanPlan:
        """Find files written before a time that nobody needs. Lists the location; deletes nothing.

        Raises:
            NeveError: the table or its location cannot be read.
        """
        table = self._table()
        table.refresh()
        reason = why_not(self.lake, self.ref, table.metadata)
        if reason:
            return OrphanPlan(self.ref.name, table.metadata.uuid, skipped=reason)
        reachable: ReachableFiles | None = None
        orphans: list[Orphan] = []
        listed, is_complete = 0, True
        for file in self._files(table):
            listed += 1
            if file.modified >= older_than:
                continue
            # Only now: it reads every manifest of every snapshot.
            reachable = reachable or self._reachable_of(table)
            if file.path not in reachable:
                if len(orphans) == most:
                    is_complete = False
                    break
                modified = datetime.fromtimestamp(file.modified, timezone.utc)
                orphans.append(Orphan(file.path, file.size, modified))
        return OrphanPlan(self.ref.name, table.metadata.uuid, tuple(orphans), listed, is_complete)

    def remove(self, plan: OrphanPlan, stop: threading.Event | None = None) -> RemovedOrphans:
        """Delete what a plan names, batch by batch until `stop` is set. Idempotent.

        Before each batch the table is read again: what a commit has taken up meanwhile stays.

        Raises:
            NeveError: the table cannot be read any more; what is left stays.
        """
        removed = RemovedOrphans()
        if not plan.orphans:
            return removed
        table = self._table(plan.table_uuid)
        for batch in _batches(plan.orphans):
            if stop is not None and stop.is_set():
                removed.is_stopped = True
                break
            table.refresh()
            reachable = self._reachable_of(table)
            doomed = [each for each in batch if each.path not in reachable]
            removed.left += len(batch) - len(doomed)
            removed.files += delete_paths(
                table.io, self.ref.name, [orphan.path for orphan in doomed]
            )
            removed.bytes += sum(orphan.size for orphan in doomed)
            failpoints.reach("upkeep.orphans_deleted")
        logger.info("%s: %d orphans deleted", self.ref.name, removed.files)
        return removed

    def _table(self, uuid: str | None = None) -> JsonTable:
        profile = profile_named(self.lake.settings, self.ref.catalog)
        catalog = self.lake.catalog(self.ref.catalog)
        return json_table(profile, catalog, self.ref.identifier, uuid)

    def _reachable_of(self, table: JsonTable) -> ReachableFiles:
        if self._reachable is None:
            self._reachable = ReachableFiles(reading(table.io))
            for write in self.unconfirmed:
                self._reachable.add(write.paths)
        self._reachable.add_table(table.metadata)
        return self._reachable

    def _files(self, table: JsonTable) -> Iterator[ListedFile]:
        profile = profile_named(self.lake.settings, self.ref.catalog)
        location = table.metadata.location
        with FileStore(profile, _access(table)) as store:
            for file in store.list_files(location):
                if not _is_hidden(file.path[len(location) :]):
                    yield file


def why_not(lake: Lake, ref: TableRef, metadata: MetadataJson) -> str:
    """Say why orphans of a table are not to be searched for; nothing if they may be."""
    profile = profile_named(lake.settings, ref.catalog)
    if profile.settings.type == "s3tables":
        return "the service removes unreferenced files by itself"
    if not may_delete_files(metadata):
        return f"{GC_ENABLED} is false"
    if not store_path(metadata.location).key.strip("/"):
        return f"its location {metadata.location} is a whole store"
    for name, other in profiles(lake.settings).items():
        if not other.has_catalog or other.settings.type == "s3tables":
            # Nobody else can put a table into a bucket of S3 Tables.
            continue
        reader = lake.reader(name)
        try:
            tables = reader.list_tables()
            if _is_same_catalog(other, profile):
                tables = [each for each in tables if each != ref.identifier]
            reason = _shared_with(metadata.location, name, reader.read_all(tables))
        except NeveError as error:
            if name == ref.catalog:
                raise
            return f"catalog {name} cannot be asked whether it has tables there: {error}"
        if reason:
            return reason
    return ""


def _is_same_catalog(one: CatalogProfile, other: CatalogProfile) -> bool:
    """Tell whether two names of the configuration mean the same tables."""
    return (one.settings.type, one.settings.uri) == (other.settings.type, other.settings.uri)


def _shared_with(
    location: str, catalog: str, others: Mapping[Identifier, MetadataJson | NeveError | None]
) -> str:
    place = place_of(location) + "/"
    for identifier, other in others.items():
        name = TableRef(catalog, identifier).name
        if not isinstance(other, MetadataJson):
            return f"the location of table {name}, which cannot be read, is not known"
        for path in (other.location, *_data_paths(other), *_known_files(other)):
            there = place_of(path.rstrip("/")) + "/"
            if there.startswith(place) or place.startswith(there):
                return f"its location is shared with table {name}"
    return ""


def _data_paths(metadata: MetadataJson) -> list[str]:
    """Return where else a table's writers put files."""
    keys = ("write.data.path", "write.metadata.path", "write.object-storage.path")
    return [metadata.properties[key] for key in keys if key in metadata.properties]


def _known_files(metadata: MetadataJson) -> Iterator[str]:
    """Yield files that a table needs, as far as its metadata alone names them.

    They lie elsewhere than its location says if that was changed: data files then do, too.
    """
    yield from metadata_files(metadata)
    for snapshot in metadata.snapshots.values():
        if snapshot.get("manifest-list"):
            yield snapshot["manifest-list"]


def _access(table: JsonTable) -> dict[str, str]:
    """Return what the catalog has given out for a table's files."""
    return {
        key: str(value)
        for key, value in table.io.properties.items()
        if key.startswith(("s3.", "client.")) and value is not None
    }


def _is_hidden(path: str) -> bool:
    # A partition such as `_day=1` is none.
    parts = path.strip("/").split("/")
    return any(part.startswith(("_", ".")) and "=" not in part for part in parts)


def _batches(orphans: tuple[Orphan, ...]) -> Iterator[tuple[Orphan, ...]]:
    for first in range(0, len(orphans), _BATCH):
        yield orphans[first : first + _BATCH]
