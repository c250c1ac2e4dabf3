"""Files of a table's location that no snapshot needs: found first, then deleted in batches.

They come from refused commits, killed tasks, dropped stagings, and expiries that were interrupted.
Nothing is removed that is younger than `upkeep.orphan_age`, nothing that a snapshot of any table of
any configured catalog names (`references.py`), nothing while such a table cannot be read completely
that may have files in the same store, nothing outside of the table's own location, and nothing in a
location that two tables share, or that has the metadata of a table which no catalog here has
(`metadata_of_others.py`). Hidden files, whose name or directory
begins with `_` or `.`, are left, as Iceberg's own removal leaves them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING

from neve import failpoints
from neve.lake.deletion import GC_ENABLED, delete_paths, may_delete_files
from neve.lake.expiry import reading
from neve.lake.file_store import FileStore
from neve.lake.json_table import JsonTable, json_table
from neve.lake.paths import store_path
from neve.lake.profile import profile_named
from neve.lake.reachable_files import ReachableFiles
from neve.upkeep.metadata_of_others import MetadataOfOthers
from neve.upkeep.table_places import TablePlaces

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.metadata_json import MetadataJson
    from neve.lake.stored_files import ListedFile
    from neve.lake.table_ref import TableRef
    from neve.lake.unconfirmed import UnconfirmedWrite
    from neve.upkeep.references import References

logger = logging.getLogger(__name__)

# More are left for the next search: so many paths take some megabytes.
MOST_AT_ONCE = 100_000
_BATCH = 500
STOPPED = "it was stopped"


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
    """Searches one table, and removes what it found.

    Args:
        places: where tables lie, shared by the searches of a run; None: this search reads it all.
    """

    lake: Lake
    ref: TableRef
    unconfirmed: Iterable[UnconfirmedWrite] = ()
    places: TablePlaces | None = None
    _reachable: ReachableFiles | None = field(default=None, repr=False)
    _references: References | None = field(default=None, repr=False)

    def plan(
        self, older_than: float, most: int = MOST_AT_ONCE, stop: threading.Event | None = None
    ) -> OrphanPlan:
        """Find files written before a time that nobody needs. Lists the location; deletes nothing.

        Args:
            most: how many are named.
            stop: once it is set, the search ends and names none.

        Raises:
            NeveError: the table or its location cannot be read.
        """
        table = self._table()
        table.refresh()
        reason = self._why_not(table.metadata)
        if reason:
            return OrphanPlan(self.ref.name, table.metadata.uuid, skipped=reason)
        profile = profile_named(self.lake.settings, self.ref.catalog)
        with FileStore(profile, _access(table)) as store:
            return self._search(table, store, older_than, most, stop)

    def _search(
        self,
        table: JsonTable,
        store: FileStore,
        older_than: float,
        most: int,
        stop: threading.Event | None,
    ) -> OrphanPlan:
        reachable: ReachableFiles | None = None
        orphans: list[Orphan] = []
        listed, is_complete = 0, True
        others = MetadataOfOthers(store, table.metadata)
        # To the end, also if there are more than are named: metadata is often listed after data.
        for file in _visible_files(store, table.metadata.location):
            if stop is not None and stop.is_set():
                return OrphanPlan(self.ref.name, table.metadata.uuid, skipped=STOPPED)
            listed += 1
            others.see(file)
            if others.found:
                break
            if file.modified >= older_than:
                continue
            # Only now: it reads every manifest of every snapshot.
            reachable = reachable or self._reachable_of(table)
            if file.path in reachable:
                continue
            # Only now: it reads those of all other tables, once for the searches of a run.
            if self._references is None and (reason := self._read_others(table.metadata, stop)):
                return OrphanPlan(self.ref.name, table.metadata.uuid, skipped=reason)
            if self._is_needed_by_others(file.path):
                continue
            if len(orphans) < most:
                modified = datetime.fromtimestamp(file.modified, timezone.utc)
                orphans.append(Orphan(file.path, file.size, modified))
            else:
                is_complete = False
        others.look()
        reason = self._why_others_need(table, others)
        if reason:
            return OrphanPlan(self.ref.name, table.metadata.uuid, listed=listed, skipped=reason)
        return OrphanPlan(self.ref.name, table.metadata.uuid, tuple(orphans), listed, is_complete)

    def _why_others_need(self, table: JsonTable, others: MetadataOfOthers) -> str:
        if others.found:
            return f"its location has metadata of another table or view, {others.found}"
        if others.newer_than(table.metadata):
            # Of commits that were made during the search, the catalog knows by now.
            table.refresh()
            if newer := others.newer_than(table.metadata):
                return f"its location has a newer version than the catalog names, {newer}"
        return ""

    def remove(self, plan: OrphanPlan, stop: threading.Event | None = None) -> RemovedOrphans:
        """Delete what a plan names, batch by batch until `stop` is set. Idempotent.

        Before each batch the table is read again: what a commit has taken up meanwhile stays. So do
        the tables' names: nothing is deleted any more once another table lies there.

        Raises:
            NeveError: the table cannot be read any more; what is left stays.
        """
        removed = RemovedOrphans()
        if not plan.orphans:
            return removed
        table = self._table(plan.table_uuid)
        for number, batch in enumerate(_batches(plan.orphans)):
            table.refresh()
            reason = self._why_not(table.metadata, anew=True)
            reason = reason or self._read_others(table.metadata, stop, anew=number == 0)
            if stop is not None and stop.is_set():
                removed.is_stopped = True
                break
            if reason:
                logger.warning("%s: no more orphans are removed: %s", self.ref.name, reason)
                removed.left = len(plan.orphans) - removed.files
                break
            reachable = self._reachable_of(table)
            doomed = [
                each
                for each in batch
                if each.path not in reachable and not self._is_needed_by_others(each.path)
            ]
            removed.left += len(batch) - len(doomed)
            self._log(doomed)
            removed.files += delete_paths(
                table.io, self.ref.name, [orphan.path for orphan in doomed]
            )
            removed.bytes += sum(orphan.size for orphan in doomed)
            failpoints.reach("upkeep.orphans_deleted")
        logger.info("%s: %d orphans deleted", self.ref.name, removed.files)
        return removed

    def _log(self, doomed: Sequence[Orphan]) -> None:
        """Write down what is about to be deleted: afterwards nothing else tells what it was."""
        if not doomed:
            return
        logger.info(
            "%s: deleting %d orphans of %d bytes, %s first",
            self.ref.name,
            len(doomed),
            sum(orphan.size for orphan in doomed),
            doomed[0].path,
        )
        for orphan in doomed:
            logger.debug("%s: deleting orphan %s", self.ref.name, orphan.path)

    def _why_not(self, metadata: MetadataJson, *, anew: bool = False) -> str:
        """Say why orphans of the table are not to be searched for; nothing if they may be."""
        profile = profile_named(self.lake.settings, self.ref.catalog)
        if profile.settings.type == "s3tables":
            return "the service removes unreferenced files by itself"
        if not may_delete_files(metadata.properties):
            return f"{GC_ENABLED} is false"
        if not metadata.uuid:
            return "it has no table-uuid: nobody can tell its metadata files from another table's"
        if not store_path(metadata.location).key.strip("/"):
            return f"its location {metadata.location} is a whole store"
        return self._places.why_shared(self.ref, metadata, anew=anew)

    @cached_property
    def _places(self) -> TablePlaces:
        return self.places or TablePlaces(self.lake)

    def _read_others(
        self, metadata: MetadataJson, stop: threading.Event | None, *, anew: bool = False
    ) -> str:
        """Read what other tables reference; say why it is not known completely."""
        self._references = self._places.references(self.ref, metadata, stop, anew=anew)
        if stop is not None and stop.is_set():
            return STOPPED
        return self._references.damage(metadata.location, self.ref)

    def _is_needed_by_others(self, path: str) -> bool:
        return self._references is None or self._references.have(path, self.ref)

    def _table(self, uuid: str | None = None) -> JsonTable:
        profile = profile_named(self.lake.settings, self.ref.catalog)
        catalog = self.lake.catalog(self.ref.catalog)
        return json_table(profile, catalog, self.ref.identifier, uuid)

    def _reachable_of(self, table: JsonTable) -> ReachableFiles:
        if self._reachable is None:
            self._reachable = ReachableFiles()
            for write in self.unconfirmed:
                self._reachable.add(write.paths)
        self._reachable.add_table(table.metadata, reading(table))
        return self._reachable


def _access(table: JsonTable) -> dict[str, str]:
    """Return what the catalog has given out for a table's files."""
    return {
        key: str(value)
        for key, value in table.io.properties.items()
        if key.startswith(("s3.", "client.")) and value is not None
    }


def _visible_files(store: FileStore, location: str) -> Iterator[ListedFile]:
    for file in store.list_files(location):
        if not _is_hidden(file.path[len(location) :]):
            yield file


def _is_hidden(path: str) -> bool:
    # A partition such as `_day=1` is none.
    parts = path.strip("/").split("/")
    return any(part.startswith(("_", ".")) and "=" not in part for part in parts)


def _batches(orphans: tuple[Orphan, ...]) -> Iterator[tuple[Orphan, ...]]:
    for first in range(0, len(orphans), _BATCH):
        yield orphans[first : first + _BATCH]
