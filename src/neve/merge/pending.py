"""What of a changelog is not merged yet, and how much of it fits into one commit. No writes.

Only appends are read. A compaction (replace) changes no rows and is passed over; an overwrite or
delete changes what the changelog says of the past, and Iceberg's incremental scan would skip it
silently, so it is refused by name.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot

from neve.errors import CatalogError
from neve.lake.ancestry import main_ancestors
from neve.lake.first_snapshot import ReadFile, is_first_snapshot
from neve.lake.java_tables import Task
from neve.lake.metadata_json import MetadataJson
from neve.merge.checkpoint import Checkpoint

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.typedef import IcebergBaseModel

REBUILD = "rebuild it from the whole changelog: neve merge {table} --rebuild"
START_ANEW = "make it anew of what the changelog has: neve merge {table} --rebuild --accept-loss"


@dataclass(frozen=True)
class Pending:
    """Snapshots to be merged, the oldest first, or one snapshot of which all files are."""

    checkpoint: Checkpoint
    snapshots: tuple[Snapshot, ...] = ()
    # Read every file of this snapshot: a first load, or the checkpoint's snapshot is expired.
    whole: Snapshot | None = None
    note: str | None = None
    # The next commit replaces all rows of the mirror, if need be by none: a rebuild, or the
    # changelog was created again.
    replaces_all: bool = False
    # Instead, events that were set aside are merged: those of this snapshot of their table.
    rejected: Snapshot | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.snapshots or self.whole or self.replaces_all or self.rejected)

    @property
    def lag_snapshots(self) -> int:
        return len(self.snapshots) or int(self.whole is not None)

    @property
    def events(self) -> int | None:
        """How many events wait, as far as metadata tells."""
        if self.whole is None:
            added = [_added_records(snapshot, -1) for snapshot in self.snapshots]
            return None if -1 in added else sum(added)
        total = self.whole.summary["total-records"] if self.whole.summary else None
        return None if total is None else int(total)

    @property
    def lag_seconds(self) -> float:
        """The age of the oldest change that is not merged."""
        oldest = self.snapshots[0] if self.snapshots else self.whole
        return max(0.0, time.time() - oldest.timestamp_ms / 1000) if oldest else 0.0


def pending(
    name: str, mirror: str, metadata: TableMetadata, checkpoint: Checkpoint | None
) -> Pending:
    """Compare a changelog with a checkpoint.

    Raises:
        CatalogError: it is another table now, was rolled back, or was overwritten.
    """
    uuid = str(metadata.table_uuid)
    main = metadata.snapshot_by_name(MAIN_BRANCH)
    if checkpoint is not None and checkpoint.table_uuid != uuid:
        raise CatalogError(
            f"{name} is another table than the one {mirror} was made of",
            hint=f"set on_recreated: truncate, or {REBUILD.format(table=mirror)}",
        )
    if main is None and checkpoint in (None, Checkpoint(uuid)):
        return Pending(Checkpoint(uuid))
    if checkpoint is None:
        note = f"{mirror}: how far it has come cannot be proven; all of {name} is merged over it"
        return Pending(Checkpoint(uuid), whole=main, note=note)
    if main is None:
        raise _rolled_back(name, mirror, checkpoint)
    if checkpoint.scanning is not None and checkpoint.whole:
        scanned = metadata.snapshot_by_id(checkpoint.scanning)
        if scanned is None:
            return _without_start(name, mirror, main, checkpoint)
        return Pending(checkpoint, whole=scanned)
    if checkpoint.snapshot_id is None:
        return Pending(checkpoint, whole=main)
    newer = _snapshots_after(metadata, checkpoint.snapshot_id)
    if _was_rolled_back(metadata, newer, checkpoint):
        raise _rolled_back(name, mirror, checkpoint)
    if newer is None:
        return _without_start(name, mirror, main, checkpoint)
    _require_appends(name, mirror, newer)
    return Pending(checkpoint, tuple(newer))


def _require_appends(name: str, mirror: str, newer: Sequence[Snapshot]) -> None:
    if overwrites := _overwrites(newer):
        what = _described(overwrites[0])
        raise CatalogError(
            f"{name}: {what}, and a changelog may only be appended to and compacted",
            hint=START_ANEW.format(table=mirror),
        )


def recreated(name: str, mirror: str, metadata: TableMetadata) -> Pending:
    """Return all of a changelog that was created again, for a mirror of the one before it.

    Its sequences may begin anew, lower than those of the rows that the mirror has. So this is no
    TRUNCATE at some sequence: the next commit replaces the rows, whatever their sequence.
    """
    note = f"{mirror}: {name} was dropped and created again; its rows replace all rows"
    main = metadata.snapshot_by_name(MAIN_BRANCH)
    return Pending(Checkpoint(str(metadata.table_uuid)), whole=main, note=note, replaces_all=True)


def unproven(name: str, metadata: TableMetadata, read: ReadFile) -> str | None:
    """Say why it cannot be proven that a changelog holds every event since its beginning.

    None: each snapshot from the table's first one to the current one is there, and is an append or
    a compaction.

    Args:
        read: reads a file of the changelog.
    """
    ancestors = list(main_ancestors(metadata))
    why = None
    if not ancestors:
        why = "it has no snapshot"
    elif changed := _overwrites(ancestors):
        why = _described(changed[0])
    # A first snapshot with a higher number is the first since the table was replaced.
    elif (ancestors[-1].sequence_number or 0) > 1 or not _is_first(metadata, ancestors[-1], read):
        why = f"snapshots before {ancestors[-1].snapshot_id} are expired, or were replaced"
    return why and f"it cannot be proven that {name} holds all its events: {why}"


def _is_first(metadata: TableMetadata, oldest: Snapshot, read: ReadFile | None = None) -> bool:
    # Part by part: PyIceberg does not write metadata of format version 3 as a whole.
    document = {
        "format-version": metadata.format_version,
        "snapshots": _as_json(metadata.snapshots),
        "metadata-log": _as_json(metadata.metadata_log),
    }
    parsed = MetadataJson("", document)
    return is_first_snapshot(parsed, parsed.snapshots[oldest.snapshot_id], read)


def _as_json(models: Iterable[IcebergBaseModel]) -> list[Any]:
    return [json.loads(each.model_dump_json()) for each in models]


def _snapshots_after(metadata: TableMetadata, start: int) -> list[Snapshot] | None:
    """Return the ancestors of `main` after `start`, the oldest first; None: it is not there."""
    newer: list[Snapshot] = []
    for snapshot in main_ancestors(metadata):
        if snapshot.snapshot_id == start:
            return newer[::-1]
        newer.append(snapshot)
    return None


def _was_rolled_back(
    metadata: TableMetadata, newer: Sequence[Snapshot] | None, checkpoint: Checkpoint
) -> bool:
    """Tell whether `main` has left what was merged, rather than its past being expired."""
    if newer is not None:
        ids = {snapshot.snapshot_id for snapshot in newer}
        return checkpoint.scanning is not None and checkpoint.scanning not in ids
    oldest = list(main_ancestors(metadata))[-1]
    if _is_first(metadata, oldest):
        return True
    merged = metadata.snapshot_by_id(checkpoint.snapshot_id or 0)
    if merged is None:
        return False
    # Expiry keeps what a ref names and takes what lies between it and `main`.
    is_kept = any(ref.snapshot_id == merged.snapshot_id for ref in metadata.refs.values())
    return not is_kept or (merged.sequence_number or 0) > (oldest.sequence_number or 0)


def _rolled_back(name: str, mirror: str, checkpoint: Checkpoint) -> CatalogError:
    merged = checkpoint.scanning or checkpoint.snapshot_id
    return CatalogError(
        f"{name} was rolled back behind snapshot {merged}, which {mirror} has merged already",
        hint=REBUILD.format(table=mirror),
    )


def _without_start(name: str, mirror: str, main: Snapshot, checkpoint: Checkpoint) -> Pending:
    expired = checkpoint.scanning or checkpoint.snapshot_id
    note = (
        f"{mirror}: snapshot {expired} of {name} is expired; what remains of it is "
        "merged over the mirror, which changes nothing that was merged before"
    )
    return Pending(Checkpoint(checkpoint.table_uuid), whole=main, note=note)


def _overwrites(snapshots: Iterable[Snapshot]) -> list[Snapshot]:
    """Return the snapshots that changed rows of the past."""
    harmless = (Operation.APPEND, Operation.REPLACE)
    return [snapshot for snapshot in snapshots if _operation(snapshot) not in harmless]


def _operation(snapshot: Snapshot) -> Operation | None:
    # Format version 1 allows a snapshot without a summary: then nobody knows what it did.
    return snapshot.summary.operation if snapshot.summary else None


def _described(snapshot: Snapshot) -> str:
    operation = _operation(snapshot)
    what = f"is of the operation {operation.value}" if operation else "does not name its operation"
    return f"snapshot {snapshot.snapshot_id} {what}"


@dataclass(frozen=True)
class Slice:
    """Rows `[start, end)` of one file."""

    task: Task
    start: int
    end: int

    @property
    def is_whole(self) -> bool:
        return self.start == 0 and self.end == self.task.records


@dataclass(frozen=True)
class Batch:
    """What one commit takes in: whole snapshots, or slices of one."""

    # The checkpoint that its commit carries.
    reaches: Checkpoint
    after_id: int | None = None
    until_id: int | None = None
    slices: tuple[Slice, ...] = ()
    # How many it has, as far as metadata tells; some of them may be deleted.
    events: int | None = None
    # The same, if metadata tells that none of them is.
    recorded: int | None = None
    # Or what can be taken of the events in this snapshot of `<mirror>_rejected`.
    rejected_id: int | None = None


def recorded_rows(snapshot: Snapshot) -> int | None:
    """Return how many rows a snapshot has; None: it does not say, or some of them are deleted."""
    if snapshot.summary is None:
        return None
    kinds = "records", "position-deletes", "equality-deletes"
    rows, *deletes = (snapshot.summary[f"total-{kind}"] for kind in kinds)
    return int(rows) if rows is not None and deletes == ["0", "0"] else None


def whole_snapshots(waiting: Pending, batch_size: int) -> Batch | None:
    """Take as many snapshots as fit; None when not even the first does, or its size is unknown."""
    total, taken, last = 0, 0, None
    for snapshot in waiting.snapshots:
        total += _added_records(snapshot, batch_size + 1)
        if total > batch_size:
            break
        last, taken = snapshot, total
    if last is None or waiting.checkpoint.scanning is not None:
        return None
    reaches = Checkpoint(waiting.checkpoint.table_uuid, last.snapshot_id)
    return Batch(reaches, waiting.checkpoint.snapshot_id, last.snapshot_id, events=taken)


def _added_records(snapshot: Snapshot, unknown: int) -> int:
    if _operation(snapshot) is Operation.REPLACE:
        return 0
    text = snapshot.summary["added-records"] if snapshot.summary else None
    if text is None:
        # An append without rows says nothing of them.
        files = snapshot.summary["added-data-files"] if snapshot.summary else None
        return unknown if files is None or int(files) else 0
    return int(text)


def file_slices(
    checkpoint: Checkpoint, snapshot_id: int, tasks: Sequence[Task], batch_size: int, *, whole: bool
) -> Batch:
    """Take files of one snapshot, from where the checkpoint stands, until a commit is full."""
    ordered = sorted(tasks, key=lambda task: (task.sequence_number, task.path))
    resumed = checkpoint.scanning == snapshot_id and checkpoint.whole == whole
    number, offset = (checkpoint.files, checkpoint.offset) if resumed else (0, 0)
    slices: list[Slice] = []
    room = batch_size
    while room > 0 and number < len(ordered):
        task = ordered[number]
        end = min(task.records, offset + room)
        if end > offset:
            slices.append(Slice(task, offset, end))
        room -= end - offset
        number, offset = (number + 1, 0) if end == task.records else (number, end)
    uuid = checkpoint.table_uuid
    reaches = Checkpoint(uuid, checkpoint.snapshot_id, snapshot_id, number, offset, whole)
    if number == len(ordered):
        reaches = Checkpoint(uuid, snapshot_id)
    return Batch(reaches, slices=tuple(slices), events=batch_size - room)


def consumed_slices(checkpoint: Checkpoint, tasks: Sequence[Task]) -> tuple[Slice, ...]:
    """Return what of a half merged snapshot is merged."""
    ordered = sorted(tasks, key=lambda task: (task.sequence_number, task.path))
    done = [Slice(task, 0, task.records) for task in ordered[: checkpoint.files]]
    if checkpoint.offset and checkpoint.files < len(ordered):
        done.append(Slice(ordered[checkpoint.files], 0, checkpoint.offset))
    return tuple(done)
