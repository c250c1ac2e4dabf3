"""Remove snapshots and tags of a table in one commit, then the files that only they had. No JVM.

Costs what expires: manifests of the removed snapshots and of their neighbours are read, and no
list of all live files. Manifest lists are read whole, and decoded where they differ.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from neve import failpoints
from neve.errors import NeveError, NotFoundError
from neve.lake.commit_loop import CommitCounters, RetryPolicy, commit_until_known
from neve.lake.deletion import GC_ENABLED, delete_paths, may_delete_files
from neve.lake.json_table import JsonTable, json_table
from neve.lake.metadata_json import MAIN, MetadataJson
from neve.lake.metadata_updates import (
    Json,
    remove_properties,
    remove_ref,
    remove_snapshots,
    set_properties,
    set_tag,
)
from neve.lake.profile import profile_named
from neve.lake.readable_main import require_readable_main
from neve.lake.snapshot_limit import REMOVED_APPENDS, with_removed, without_doubt
from neve.lake.store_faults import explaining
from neve.lake.unreachable import UnreachableFiles, unreachable_files

if TYPE_CHECKING:
    from neve.lake.lake import Lake
    from neve.lake.table_ref import TableRef

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class NewTag:
    """A tag that keeps a version; engines that expire by refs' ages drop it after that age."""

    name: str
    snapshot_id: int
    max_ref_age_ms: int


@dataclass(frozen=True)
class SnapshotRemoval:
    """What one commit removes and sets.

    Args:
        drop_tags: the tags that go, and the snapshots they must be at.
        known_main: snapshots that were on `main`, though no line may lead there any more.
    """

    snapshot_ids: tuple[int, ...] = ()
    new_tags: tuple[NewTag, ...] = ()
    drop_tags: Mapping[str, int] = field(default_factory=dict)
    set_properties: Mapping[str, str] = field(default_factory=dict)
    remove_properties: tuple[str, ...] = ()
    known_main: frozenset[int] = frozenset()

    @property
    def is_empty(self) -> bool:
        return not (self.snapshot_ids or self.new_tags or self.drop_tags)

    def updates(self, base: MetadataJson) -> list[Json]:
        """Return the updates of the commit. Refs go first: a named snapshot cannot be removed."""
        properties = dict(self.set_properties)
        certain = without_doubt(base, self.snapshot_ids)
        if certain:
            properties[REMOVED_APPENDS] = with_removed(base, certain)
        updates = [set_tag(tag.name, tag.snapshot_id, tag.max_ref_age_ms) for tag in self.new_tags]
        updates += [remove_ref(name) for name in self.drop_tags]
        if properties:
            updates.append(set_properties(properties))
        if self.remove_properties:
            updates.append(remove_properties(self.remove_properties))
        if self.snapshot_ids:
            updates.append(remove_snapshots(self.snapshot_ids))
        return updates

    def is_applied(self, metadata: MetadataJson) -> bool:
        return (
            metadata.snapshots.keys().isdisjoint(self.snapshot_ids)
            and metadata.refs.keys().isdisjoint(self.drop_tags)
            and all(metadata.refs.get(tag.name) == tag.snapshot_id for tag in self.new_tags)
        )


@dataclass(frozen=True)
class Removed:
    """What a removal came to; `left` says why files were left for orphan removal."""

    snapshots: int = 0
    files: UnreachableFiles = field(default_factory=UnreachableFiles)
    left: str = ""


Narrow = Callable[[MetadataJson], SnapshotRemoval]
# Says why files of a table are to stay, since another table may need them; nothing if none does.
WhyShared = Callable[[MetadataJson, Collection[str]], str]


def remove_expired(
    lake: Lake,
    ref: TableRef,
    table_uuid: str,
    narrow: Narrow,
    why_shared: WhyShared,
    retry: RetryPolicy | None = None,
) -> Removed:
    """Commit a removal and delete the files that nobody can reach any more.

    Atomic; idempotent. Files are deleted only once the table shows that the snapshots are gone. A
    process that dies in between leaves files that orphan removal takes. Nothing goes while `main`
    cannot be read completely: older versions are what it can be restored from.

    Args:
        narrow: returns what of the plan still holds for the table as it is now; pure.
        why_shared: is asked once the snapshots are gone, before their files are deleted.

    Raises:
        NotFoundError: the table was dropped, or dropped and created again.
        ConflictError: other writers were first in every attempt; nothing was changed.
        UnknownOutcomeError: the answer was lost, and the table does not show the removal yet.
        NeveError: a manifest of `main` cannot be read; nothing was changed.
    """
    profile = profile_named(lake.settings, ref.catalog)
    table = json_table(profile, lake.catalog(ref.catalog), ref.identifier, table_uuid)
    attempted: list[tuple[SnapshotRemoval, MetadataJson]] = []

    def attempt() -> tuple[SnapshotRemoval, MetadataJson]:
        base = table.metadata
        removal = narrow(base)
        if removal.snapshot_ids or removal.drop_tags:
            require_readable_main(table.name, reading(table), base)
        if not removal.is_empty:
            attempted.append((removal, base))
            what = f"expiring {len(removal.snapshot_ids)} snapshots"
            # A new tag must be absent still: somebody may just have made one of that name.
            unmoved = (*base.refs, *(tag.name for tag in removal.new_tags))
            table.commit(MAIN, removal.updates(base), what, unmoved=unmoved)
        return removal, base

    def find_applied() -> tuple[SnapshotRemoval, MetadataJson] | None:
        applied = (each for each in attempted if each[0].is_applied(table.metadata))
        return next(applied, None)

    removal, before = commit_until_known(
        table.refresh,
        attempt,
        find_applied,
        policy=retry or RetryPolicy(),
        counters=CommitCounters(),
    )
    if not removal.snapshot_ids:
        return Removed()
    failpoints.reach("upkeep.expired")
    return _delete_unreachable(table, removal, before, why_shared)


def _delete_unreachable(
    table: JsonTable, removal: SnapshotRemoval, before: MetadataJson, why_shared: WhyShared
) -> Removed:
    count = len(removal.snapshot_ids)
    if not may_delete_files(before.properties):
        return Removed(count, left=f"{GC_ENABLED} is false")
    # A server may answer a commit without the metadata.
    table.refresh()
    if not table.metadata.snapshots.keys().isdisjoint(removal.snapshot_ids):
        return Removed(count, left="the table has changed meanwhile")
    try:
        files = unreachable_files(
            reading(table), before, table.metadata, removal.snapshot_ids, removal.known_main
        )
    except Exception as error:  # noqa: BLE001 - the commit is applied, whatever happens here
        logger.warning("%s: files of expired snapshots are left: %s", table.name, error)
        return Removed(count, left=f"not all manifests could be read: {error}")
    reason = _why_kept(table, files, why_shared)
    if reason:
        return Removed(count, left=reason)
    delete_paths(table.io, table.name, files.paths)
    return Removed(count, files)


def _why_kept(table: JsonTable, files: UnreachableFiles, why_shared: WhyShared) -> str:
    if not files.paths:
        return ""
    try:
        return why_shared(table.metadata, files.paths)
    except NeveError as error:
        return f"nobody knows whether another table needs them: {error}"


def reading(table: JsonTable) -> Callable[[str], bytes]:
    """Return what reads whole files of a table; errors name the table and the file.

    Raises:
        NotFoundError, StorageError: a file that the table names is lost, or cannot be read.
    """

    def read(path: str) -> bytes:
        with explaining(f"{table.name}: cannot read", path):
            try:
                with table.io.new_input(path).open() as file:
                    return file.read()
            except FileNotFoundError as error:
                raise NotFoundError(
                    f"{table.name}: {path} does not exist, and a snapshot needs it",
                    hint="restore it from a backup; until then no file of the table is removed",
                ) from error

    return read


def retained_removal(
    removal: SnapshotRemoval, metadata: MetadataJson, still_removable: Collection[int]
) -> SnapshotRemoval:
    """Return what of a removal still holds: nothing that a ref has come to name meanwhile."""
    drop = {
        name: number
        for name, number in removal.drop_tags.items()
        if metadata.refs.get(name) == number
    }
    named = {number for name, number in metadata.refs.items() if name not in drop}
    tags = tuple(
        tag
        for tag in removal.new_tags
        if tag.snapshot_id in metadata.snapshots and tag.name not in metadata.refs
    )
    named |= {tag.snapshot_id for tag in tags}
    ids: Sequence[int] = [
        number
        for number in removal.snapshot_ids
        if number in metadata.snapshots and number not in named and number in still_removable
    ]
    return SnapshotRemoval(
        tuple(ids),
        tags,
        drop,
        removal.set_properties,
        removal.remove_properties,
        removal.known_main,
    )
