"""A table's metadata in PyIceberg's model, without its history.

Parsing takes PyIceberg as long as there are snapshots. Those who write files and manifests need
the shape of the table and its current snapshot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Snapshot

from neve.lake.metadata_json import MAIN

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from neve.lake.metadata_json import MetadataJson

# What every commit changes, or what grows with each.
_HISTORY = frozenset(
    (
        "current-snapshot-id",
        "last-sequence-number",
        "last-updated-ms",
        "metadata-log",
        "partition-statistics",
        "refs",
        "snapshot-log",
        "snapshots",
        "statistics",
    )
)


class TrimmedMetadata:
    """Parses the shape of a table once for as long as it stays the same."""

    def __init__(self) -> None:
        self._parsed: tuple[dict[str, Any], TableMetadata] | None = None
        self._last: tuple[MetadataJson, TableMetadata] | None = None

    def parse(self, metadata: MetadataJson) -> TableMetadata:
        """Return metadata whose only snapshot is the current one, and whose only ref is `main`."""
        last = self._last
        if last is not None and last[0] is metadata:
            return last[1]
        trimmed = _with_current_snapshot(self._shape(metadata), metadata)
        self._last = (metadata, trimmed)
        return trimmed

    def _shape(self, metadata: MetadataJson) -> TableMetadata:
        shape = {key: value for key, value in metadata.document.items() if key not in _HISTORY}
        parsed = self._parsed
        if parsed is None or parsed[0] != shape:
            document = {**shape, "last-updated-ms": 0, "last-sequence-number": 0}
            parsed = self._parsed = (shape, TableMetadataUtil.parse_obj(document))
        return parsed[1]


def trimmed_document(metadata: MetadataJson) -> dict[str, Any]:
    """Return a metadata document whose only snapshot is the current one."""
    document = {
        **metadata.document,
        "snapshots": [],
        "refs": {},
        "snapshot-log": [],
        "metadata-log": [],
        "statistics": [],
        "partition-statistics": [],
    }
    current = metadata.current_snapshot_id
    if current is not None:
        document["snapshots"] = [metadata.snapshots[current]]
        document["refs"] = {MAIN: {"snapshot-id": current, "type": "branch"}}
    return document


def _with_current_snapshot(shape: TableMetadata, metadata: MetadataJson) -> TableMetadata:
    snapshot_id = metadata.current_snapshot_id
    history: dict[str, Any] = {
        "last_updated_ms": metadata.last_updated_ms,
        "last_sequence_number": metadata.document.get("last-sequence-number") or 0,
        "current_snapshot_id": snapshot_id,
    }
    if snapshot_id is not None:
        current = Snapshot.model_validate(metadata.snapshots[snapshot_id])
        history["snapshots"] = [current]
        history["refs"] = {
            MAIN: SnapshotRef.model_validate({"snapshot-id": snapshot_id, "type": "branch"})
        }
    return shape.model_copy(update=history)
