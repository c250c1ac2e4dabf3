"""Tables that exist as metadata only: a line of snapshots, for what reads nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.types import LongType, NestedField

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))


def append(snapshot_id: int, rows: int | None = 1, **summary: str) -> Snapshot:
    counted = {} if rows is None else {"added-records": str(rows), "added-data-files": "1"}
    return _snapshot(snapshot_id, Operation.APPEND, {**counted, **summary})


def append_nothing(snapshot_id: int) -> Snapshot:
    return _snapshot(snapshot_id, Operation.APPEND, {"added-data-files": "0"})


def replace(snapshot_id: int) -> Snapshot:
    return _snapshot(snapshot_id, Operation.REPLACE, {"added-records": "100"})


def overwrite(snapshot_id: int) -> Snapshot:
    return _snapshot(snapshot_id, Operation.OVERWRITE, {})


def unnamed(snapshot_id: int) -> Snapshot:
    """A snapshot without a summary, as format version 1 allows it."""
    return append(snapshot_id).model_copy(update={"summary": None})


def _snapshot(snapshot_id: int, operation: Operation, summary: dict[str, str]) -> Snapshot:
    return Snapshot(
        snapshot_id=snapshot_id,
        sequence_number=snapshot_id,
        timestamp_ms=snapshot_id * 1000,
        manifest_list="none",
        summary=Summary(operation, **summary),
    )


def metadata_of(
    *snapshots: Snapshot,
    main: int | None = None,
    expired: Sequence[int] = (),
    **fields: Any,
) -> TableMetadataV2:
    """Return a table whose snapshots grew one from the other, the first the oldest."""
    parents = [None, *(one.snapshot_id for one in snapshots)]
    grown = [
        one.model_copy(update={"parent_snapshot_id": parent})
        for one, parent in zip(snapshots, parents, strict=False)
    ]
    if grown:
        grown[0] = _with_totals(grown[0])
    head = main if main is not None else parents[-1]
    refs = {}
    if head is not None:
        refs["main"] = SnapshotRef(snapshot_id=head, snapshot_ref_type=SnapshotRefType.BRANCH)
    return TableMetadataV2(
        location="memory://table",
        last_column_id=1,
        schemas=[SCHEMA],
        current_schema_id=SCHEMA.schema_id,
        partition_specs=[PartitionSpec()],
        default_spec_id=0,
        last_partition_id=999,
        last_sequence_number=max(map(_number, grown), default=0),
        current_snapshot_id=head,
        snapshots=[one for one in grown if one.snapshot_id not in expired],
        refs=refs,
        **fields,
    )


def _with_totals(first: Snapshot) -> Snapshot:
    """Say what a table has after its first snapshot."""
    added = first.summary.additional_properties if first.summary else {}
    totals = {
        f"total-{what}": added.get(f"added-{what}", "0") for what in ("records", "data-files")
    }
    operation = first.summary.operation if first.summary else Operation.APPEND
    return first.model_copy(update={"summary": Summary(operation, **{**totals, **added})})


def _number(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or 0
