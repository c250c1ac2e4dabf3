"""Snapshots past a retention: which can go, and Iceberg's own procedure that lets them go."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import ancestors_of

from neve.lake.identifier import quote_identifier

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from neve.lake.lake import Lake
    from neve.lake.table_ref import TableRef


def count_expirable(metadata: TableMetadata, older_than_ms: int, retain_last: int) -> int:
    """Return how many snapshots `expire_snapshots` would remove; reads nothing.

    Kept are those that are young, what refs name, and the last few of every branch.
    """
    kept = set()
    for ref in metadata.refs.values():
        kept.add(ref.snapshot_id)
        if ref.snapshot_ref_type is SnapshotRefType.BRANCH:
            newest_first = ancestors_of(metadata.snapshot_by_id(ref.snapshot_id), metadata)
            for snapshot, _ in zip(newest_first, range(retain_last), strict=False):
                kept.add(snapshot.snapshot_id)
    return sum(
        one.timestamp_ms < older_than_ms and one.snapshot_id not in kept
        for one in metadata.snapshots
    )


def expire_snapshots(lake: Lake, ref: TableRef, older_than_ms: int, retain_last: int) -> None:
    """Expire old snapshots and delete the files that only they had.

    Atomic; idempotent. Snapshots that a tag or a branch names stay, and so do table properties.
    """
    older_than = datetime.fromtimestamp(older_than_ms / 1000, timezone.utc)
    with lake.explaining():
        lake.spark.sql(
            f"CALL {quote_identifier((ref.catalog, 'system', 'expire_snapshots'))}"
            "(table => :table, older_than => :older_than, retain_last => :retain_last)",
            args={
                "table": ref.quoted,
                "older_than": older_than,
                "retain_last": retain_last,
            },
        ).collect()
