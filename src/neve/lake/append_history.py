"""What a table's snapshots say of appends: which are applied, and what their absence proves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.lake.snapshot_limit import APPEND_ID, main_history

if TYPE_CHECKING:
    from neve.lake.metadata_json import MetadataJson


def applied_appends(metadata: MetadataJson) -> dict[str, int]:
    """Return the snapshot of each append that is applied, by the append's id."""
    return {
        append_id: snapshot_id
        for snapshot_id, snapshot in metadata.snapshots.items()
        for append_id in (snapshot.get("summary") or {}).get(APPEND_ID, "").split(",")
    }


def has_history_since(metadata: MetadataJson, snapshot_id: int | None) -> bool:
    """Tell whether all that `main` was since a snapshot, or ever, is kept.

    Only then does it prove something that an append is not found.
    """
    if snapshot_id is None:
        return _has_all_snapshots(metadata)
    return any(each["snapshot-id"] == snapshot_id for each in main_history(metadata))


def _has_all_snapshots(metadata: MetadataJson) -> bool:
    """Tell whether no snapshot was ever removed.

    A missing parent proves nothing: PyIceberg's expiry makes the oldest retained snapshot look like
    the first one. Each snapshot takes the next sequence number, so that a removed one leaves a gap.
    """
    if metadata.format_version == 1:
        # There are no numbers. Nobody writes such a table and expires it in the same seconds.
        history = main_history(metadata)
        return not history or history[-1].get("parent-snapshot-id") is None
    known = {each.get("sequence-number") for each in metadata.snapshots.values()}
    return len(known) >= int(metadata.document["last-sequence-number"])
