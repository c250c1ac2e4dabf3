"""A table's metadata in PyIceberg's model, without its history, or with the newest part of it.

Parsing takes PyIceberg as long as there are snapshots. Those who write files and manifests need
the shape of the table and its current snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
        current = metadata.current_snapshot_id
        snapshots = [] if current is None else [metadata.snapshots[current]]
        trimmed = _with_snapshots(self._shape(metadata), metadata, snapshots)
        self._last = (metadata, trimmed)
        return trimmed

    def parse_with(
        self, metadata: MetadataJson, snapshots: Sequence[Mapping[str, Any]]
    ) -> TableMetadata:
        """Return metadata with some of its snapshots, and no other ref than `main`."""
        return _with_snapshots(self._shape(metadata), metadata, snapshots)

    def _shape(self, metadata: MetadataJson) -> TableMetadata:
        shape = {key: value for key, value in metadata.document.items() if key not in _HISTORY}
        parsed = self._parsed
        if parsed is None or parsed[0] != shape:
            document = {**shape, "last-updated-ms": 0, "last-sequence-number": 0}
            parsed = self._parsed = (shape, TableMetadataUtil.parse_obj(document))
        return parsed[1]


def trimmed_document(metadata: MetadataJson) -> dict[str, Any]:
    """Return a metadata document whose only snapshot is the current one."""
    current = metadata.current_snapshot_id
    return _document_with(metadata, [] if current is None else [metadata.snapshots[current]])


def with_history_from(metadata: MetadataJson, snapshot_id: int) -> MetadataJson | None:
    """Return metadata with the snapshots of `main` that begin with one; None: it has no such one.

    The same object, if it has no other snapshots.
    """
    newest: list[Mapping[str, Any]] = []
    for snapshot in metadata.iter_main_history():
        newest.append(snapshot)
        if snapshot["snapshot-id"] == snapshot_id:
            if len(newest) == len(metadata.snapshots):
                return metadata
            return replace(metadata, document=_document_with(metadata, newest[::-1]))
    return None


def _document_with(
    metadata: MetadataJson, snapshots: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    current = metadata.current_snapshot_id
    return {
        **metadata.document,
        "snapshots": snapshots,
        "refs": {} if current is None else {MAIN: {"snapshot-id": current, "type": "branch"}},
        "snapshot-log": [],
        "metadata-log": [],
        "statistics": [],
        "partition-statistics": [],
    }


def _with_snapshots(
    shape: TableMetadata, metadata: MetadataJson, snapshots: Sequence[Mapping[str, Any]]
) -> TableMetadata:
    snapshot_id = metadata.current_snapshot_id
    history: dict[str, Any] = {
        "last_updated_ms": metadata.last_updated_ms,
        "last_sequence_number": metadata.document.get("last-sequence-number") or 0,
        "current_snapshot_id": snapshot_id,
        "snapshots": [Snapshot.model_validate(each) for each in snapshots],
    }
    if snapshot_id is not None:
        history["refs"] = {
            MAIN: SnapshotRef.model_validate({"snapshot-id": snapshot_id, "type": "branch"})
        }
    return shape.model_copy(update=history)
