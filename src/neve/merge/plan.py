"""What a merge would do: the changelog, the mirror and the difference, looked at without writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pyiceberg.schema import Schema
from pyiceberg.table.refs import MAIN_BRANCH

from neve.errors import CatalogError, ConfigError, NotFoundError
from neve.lake.catalog import load_table
from neve.lake.create import load_if_exists
from neve.lake.document_table import DocumentTable, find_document_table
from neve.lake.java_tables import Task
from neve.lake.range_reads import read_whole
from neve.lake.watched_table import WatchedTable
from neve.merge.check import check_added, check_columns
from neve.merge.checkpoint import Checkpoint, MirrorState, mirror_state, snapshot_to_restore
from neve.merge.drift import Drift, find_drift
from neve.merge.dropped import older_schemas, require_no_loss
from neve.merge.mirror import (
    is_recreated,
    mirror_schema,
    origins_of,
    require_our_side_table,
    require_ours,
)
from neve.merge.pending import (
    START_ANEW,
    Batch,
    Pending,
    file_slices,
    pending,
    recorded_rows,
    recreated,
    unproven,
    whole_snapshots,
)

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

    from neve.lake import Lake
    from neve.merge.spec import MergeSpec


@dataclass(frozen=True)
class Look:
    """Changelog and mirror as the catalog has them at one moment."""

    changelog: TableMetadata
    # None: the mirror is still to be made.
    mirror: TableMetadata | None
    state: MirrorState | None
    pending: Pending
    drift: Drift
    # The mirror's columns, as they are; of one still to be made, as they will be.
    schema: Schema
    # Everything the mirror has is replaced.
    rebuild: bool = False
    # The mirror itself, as it was loaded for this look.
    mirror_table: Table | None = None
    # Reads the changelog's files.
    changelog_io: FileIO | None = None

    @property
    def mirror_is_empty(self) -> bool:
        """Tell whether there is nothing that events could meet."""
        if self.mirror is None or self.state is None or self.rebuild:
            return True
        return self.mirror_rows == 0

    @property
    def is_bulk_load(self) -> bool:
        """Tell whether all that waits becomes one commit, however much it is.

        Events that meet no row need neither a lookup nor small batches. A load that an older
        version has begun in slices goes on so. Of a rebuild, readers see the old rows, then the new
        ones.
        """
        return self.mirror_is_empty and self.pending.checkpoint.scanning is None

    @property
    def mirror_rows(self) -> int:
        """Rows of the mirror, deleted ones that lie in its files included."""
        if self.mirror is None or self.state is None:
            return 0
        main = self.mirror.snapshot_by_id(self.state.main_id)
        total = main.summary["total-records"] if main and main.summary else None
        # Not said: some engine's commit. Then it is taken for large, which is never wrong.
        return int(total) if total is not None else 1 << 62


Observe = Callable[["Lake", "MergeSpec"], Look]


@dataclass(frozen=True)
class KnownChangelog:
    """A changelog as it was read before, and how much of it this worker has merged since."""

    metadata: TableMetadata
    reached: Checkpoint
    io: FileIO | None = None


@dataclass
class LoadedTables:
    """Both tables as they were looked at last: what has not changed is not parsed again."""

    changelog: WatchedTable | None = None
    mirror: DocumentTable | None = None


def look(
    lake: Lake,
    spec: MergeSpec,
    known: KnownChangelog | None = None,
    loaded: LoadedTables | None = None,
) -> Look:
    """Read both tables' metadata and compare them.

    Args:
        known: is used instead of the changelog as it is now, unless another worker has merged.
        loaded: the tables as they were looked at before; it is brought up to date.

    Raises:
        NotFoundError: there is no such changelog.
        ConfigError: columns are missing, or a table in the mirror's place or beside it is not ours.
        CatalogError: the changelog cannot be followed, or its schema does not fit (strict).
    """
    loaded = loaded or LoadedTables()
    changelog, io, table = _load(lake, spec, known, loaded)
    if table is None:
        require_side_tables(lake, spec)
        schema = mirror_schema(spec, changelog.schema())
        drift = find_drift(spec, changelog.schema(), schema, {})
        waiting = pending(spec.changelog_name, spec.name, changelog, None)
        return Look(changelog, None, None, replace(waiting, note=None), drift, schema)
    mirror = table.metadata
    state = mirror_state(mirror)
    if known and state.checkpoint != known.reached:
        return look(lake, spec, loaded=loaded)
    if spec.truncates_if_recreated and is_recreated(spec, changelog, mirror, state):
        waiting = recreated(spec.changelog_name, spec.name, changelog)
        return _replacing(spec, changelog, table, waiting)
    waiting = pending(spec.changelog_name, spec.name, changelog, state.checkpoint)
    drift = _drift(spec, changelog, mirror)
    schema = mirror.schema()
    return Look(
        *(changelog, mirror, state, waiting, drift, schema), mirror_table=table, changelog_io=io
    )


def _load(
    lake: Lake, spec: MergeSpec, known: KnownChangelog | None, loaded: LoadedTables
) -> tuple[TableMetadata, FileIO | None, DocumentTable | None]:
    """Return the changelog and the mirror, if there is one, that are as the configuration says.

    Also return what reads the changelog's files. Of a changelog that was not merged up to some
    snapshot of its history, all is returned.
    """
    profile, catalog = lake.profile, lake.catalog()
    # First: what another worker merges meanwhile is in the changelog that is read after it.
    mirror = loaded.mirror = find_document_table(profile, catalog, spec.mirror, loaded.mirror)
    watched = loaded.changelog = loaded.changelog or WatchedTable(profile, catalog, spec.changelog)
    if known is None:
        watched.refresh()
        # First of all: a table without one would be taken for another one each time.
        _ = watched.uuid
    if known is not None:
        changelog, io = known.metadata, known.io
    else:
        changelog, io = watched.since(_first_needed(watched, mirror)), watched.io
    check_columns(spec, changelog.schema(), older_schemas(changelog))
    if mirror is None:
        return changelog, io, None
    require_ours(spec, mirror.metadata)
    return changelog, io, mirror


def _first_needed(changelog: WatchedTable, mirror: DocumentTable | None) -> int | None:
    """Return the snapshot from which on a changelog is looked at; None: all of it is."""
    if mirror is None or mirror.metadata.current_snapshot_id is None:
        return None
    checkpoint = mirror_state(mirror.metadata).checkpoint
    if checkpoint is None or checkpoint.whole or checkpoint.table_uuid != changelog.uuid:
        return None
    return checkpoint.snapshot_id


def require_side_tables(lake: Lake, spec: MergeSpec) -> None:
    """Refuse tables beside the mirror that somebody else made. Raises ConfigError."""
    catalog = lake.catalog()
    for identifier in (spec.tombstones, spec.rejected):
        require_our_side_table(spec, identifier, load_if_exists(lake.profile, catalog, identifier))


def look_anew(lake: Lake, spec: MergeSpec, *, accept_loss: bool = False) -> Look:
    """Read both tables' metadata as for a rebuild: all of the changelog, nothing of the mirror.

    Args:
        accept_loss: take what the changelog has; the note says what cannot be proven of it.

    Raises:
        CatalogError: it cannot be proven that the changelog holds all its events, so that rows
            could be lost; or a column would lose its values.
    """
    mirror = find_document_table(lake.profile, lake.catalog(), spec.mirror)
    if mirror is None:
        return look(lake, spec)
    table = load_table(lake.profile, lake.catalog(), spec.changelog)
    changelog = table.metadata
    check_columns(spec, changelog.schema(), older_schemas(changelog))
    require_ours(spec, mirror.metadata)
    read = partial(read_whole, dict(table.io.properties))
    doubt = unproven(spec.changelog_name, changelog, read)
    if doubt and not accept_loss:
        raise CatalogError(
            f"{doubt}; a rebuild of {spec.name} could lose rows",
            hint=START_ANEW.format(table=spec.name),
        )
    main = changelog.snapshot_by_name(MAIN_BRANCH)
    note = doubt and f"{spec.name}: made anew nevertheless, as asked: {doubt}"
    checkpoint = Checkpoint(str(changelog.table_uuid))
    waiting = Pending(checkpoint, whole=main, note=note, replaces_all=True)
    look_at_all = _replacing(spec, changelog, mirror, waiting)
    require_no_loss(spec, changelog, mirror.metadata.schema(), look_at_all.drift)
    return look_at_all


def look_rejected(lake: Lake, spec: MergeSpec) -> Look:
    """Read the tables' metadata as for merging the events that were set aside.

    Raises:
        CatalogError: they are events of a changelog that does not exist any more.
        NotFoundError: there is no mirror yet.
    """
    tables = look(lake, spec)
    if tables.pending.replaces_all:
        raise CatalogError(
            f"{spec.changelog_name} was created again, and what {spec.name} set aside is of the "
            "table before it",
            hint=f"merge the new one first: neve merge {spec.name} --once",
        )
    state = tables.state
    if state is None:
        raise NotFoundError(
            f"the mirror {spec.name} does not exist yet", hint="neve merge --once makes it"
        )
    checkpoint = state.checkpoint or tables.pending.checkpoint
    table = load_if_exists(lake.profile, lake.catalog(), spec.rejected)
    rejected = None
    if table is not None:
        rejected_id = snapshot_to_restore(table.metadata, state, state.rejected_id)
        rejected = None if rejected_id is None else table.metadata.snapshot_by_id(rejected_id)
    return replace(tables, pending=Pending(checkpoint, rejected=rejected))


def _replacing(spec: MergeSpec, changelog: TableMetadata, table: Table, waiting: Pending) -> Look:
    """Return a look at a mirror of which nothing counts any more: not its rows, not its barrier."""
    mirror = table.metadata
    state = replace(mirror_state(mirror), checkpoint=waiting.checkpoint, barrier=None)
    drift = _drift(spec, changelog, mirror)
    return Look(
        changelog, mirror, state, waiting, drift, mirror.schema(), rebuild=True, mirror_table=table
    )


def _drift(spec: MergeSpec, changelog: TableMetadata, mirror: TableMetadata) -> Drift:
    origins = origins_of(mirror, str(changelog.table_uuid))
    older = older_schemas(changelog)
    drift = find_drift(spec, changelog.schema(), mirror.schema(), origins, older)
    check_added(spec, mirror.schema(), drift)
    _refuse_incompatible(spec, drift)
    return drift


def _refuse_incompatible(spec: MergeSpec, drift: Drift) -> None:
    needed = {*spec.keys, *spec.sequence}
    for column in drift.incompatible:
        if spec.strict:
            raise CatalogError(f"{spec.name}: {column.reason}", hint=column.remedy)
        if column.name in needed:
            raise ConfigError(
                f"{spec.name}: {column.reason}, and merging needs it", hint=column.remedy
            )


def _everything(tables: Look, plan_files: PlanFiles) -> Batch:
    """Take all that waits."""
    waiting, changelog = tables.pending, tables.changelog
    newest = waiting.whole or (waiting.snapshots[-1] if waiting.snapshots else None)
    if newest is None:
        return Batch(waiting.checkpoint, events=0)
    snapshot_id = newest.snapshot_id
    if waiting.whole is not None and newest.schema_id != changelog.current_schema_id:
        # Spark reads an old snapshot with the columns that it had, and files with any columns.
        tasks = plan_files(snapshot_id, None)
        rows = sum(task.records for task in tasks)
        return file_slices(waiting.checkpoint, snapshot_id, tasks, rows, whole=True)
    after_id = None if waiting.whole else waiting.checkpoint.snapshot_id
    reaches = Checkpoint(waiting.checkpoint.table_uuid, snapshot_id)
    return Batch(reaches, after_id, snapshot_id, events=waiting.events)


PlanFiles = Callable[[int, "int | None"], Sequence[Task]]


def next_batch(tables: Look, spec: MergeSpec, plan_files: PlanFiles) -> Batch:
    """Choose what the next commit takes in.

    Args:
        plan_files: returns the changelog's files at a snapshot, or those appended after another.
    """
    waiting = tables.pending
    if waiting.rejected is not None:
        rejected_id, rows = waiting.rejected.snapshot_id, recorded_rows(waiting.rejected)
        return Batch(waiting.checkpoint, rejected_id=rejected_id, recorded=rows)
    batch = _next_batch(tables, spec, plan_files)
    if waiting.whole is not None and recorded_rows(waiting.whole) is None:
        return batch
    return replace(batch, recorded=batch.events)


def _next_batch(tables: Look, spec: MergeSpec, plan_files: PlanFiles) -> Batch:
    waiting = tables.pending
    if tables.is_bulk_load:
        return _everything(tables, plan_files)
    if waiting.whole is not None:
        snapshot = waiting.whole.snapshot_id
        tasks = plan_files(snapshot, None)
        return file_slices(waiting.checkpoint, snapshot, tasks, spec.batch_size, whole=True)
    if not waiting.snapshots:
        return Batch(waiting.checkpoint, events=0)
    batch = whole_snapshots(waiting, spec.batch_size)
    if batch is not None:
        return batch
    snapshot = waiting.snapshots[0].snapshot_id
    tasks = plan_files(snapshot, waiting.checkpoint.snapshot_id)
    return file_slices(waiting.checkpoint, snapshot, tasks, spec.batch_size, whole=False)
