"""What a table is, read from its metadata alone: no data file is opened, no JVM started."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from neve.lake.history import Snapshot, history
from neve.lake.identifier import Identifier, name_of
from neve.lake.metadata_json import MetadataJson, type_text
from neve.observe.failures import failure_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neve.errors import NeveError


@dataclass(frozen=True)
class TableSummary:
    """One line of `neve tables`.

    Args:
        error: why the table cannot be read; nothing but its name is known then.
    """

    table: str
    format_version: int | None
    rows: int | None
    files: int | None
    bytes: int | None
    snapshots: int | None
    updated_at: datetime | None
    error: str | None = None


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    required: bool
    comment: str | None


@dataclass(frozen=True)
class TableDescription:
    """Everything `neve describe` shows."""

    table: str
    uuid: str
    location: str
    format_version: int
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...]
    sort_by: tuple[str, ...]
    read_by_row: tuple[str, ...]
    """Columns for which Spark's vectorised reader of Iceberg falls back to rows: a query that reads
    one of them reads all its columns more slowly. Other engines do not."""
    current_snapshot_id: int | None
    snapshots: int
    rows: int | None
    files: int | None
    bytes: int | None
    updated_at: datetime
    refs: dict[str, int]
    properties: dict[str, str]
    history: tuple[Snapshot, ...]


def summarize(identifier: Identifier, metadata: MetadataJson | NeveError) -> TableSummary:
    """Sum a table up; one that cannot be read has its name and the reason."""
    name = name_of(identifier)
    if not isinstance(metadata, MetadataJson):
        return TableSummary(name, None, None, None, None, None, None, str(metadata))
    try:
        totals = _totals(metadata)
        updated_at = _time(metadata.last_updated_ms)
    except Exception as error:  # noqa: BLE001 - what is odd of one table hides no other
        return summarize(identifier, failure_of(error, "tables", name))
    return TableSummary(
        name,
        metadata.format_version,
        *totals,
        snapshots=len(metadata.snapshots),
        updated_at=updated_at,
    )


def describe(name: str, metadata: MetadataJson) -> TableDescription:
    """Describe a table's present state."""
    names = metadata.column_names
    rows, files, size = _totals(metadata)
    return TableDescription(
        table=name,
        uuid=metadata.uuid,
        location=metadata.location,
        format_version=metadata.format_version,
        columns=tuple(
            Column(field["name"], type_text(field["type"]), field["required"], field.get("doc"))
            for field in metadata.fields
        ),
        partition_by=tuple(
            f"{field['transform']}({names.get(field['source-id'])})"
            for field in metadata.partition_fields
        ),
        sort_by=tuple(
            f"{names.get(field['source-id'])} {field['direction'].upper()}"
            for field in metadata.sort_fields
        ),
        read_by_row=tuple(
            field["name"] for field in metadata.fields if _is_read_by_row(metadata, field)
        ),
        current_snapshot_id=metadata.current_snapshot_id,
        snapshots=len(metadata.snapshots),
        rows=rows,
        files=files,
        bytes=size,
        updated_at=_time(metadata.last_updated_ms),
        refs=dict(metadata.refs),
        properties=dict(sorted(metadata.properties.items())),
        history=history(metadata),
    )


def _is_read_by_row(metadata: MetadataJson, field: Mapping[str, Any]) -> bool:
    """Decide as Iceberg's `SparkBatch` does."""
    type_, properties = field["type"], metadata.properties
    if not isinstance(type_, str) or type_.startswith(("geometry", "geography")):
        return True
    if type_ != "variant":
        return False
    metrics = properties.get(f"write.metadata.metrics.column.{field['name']}") or properties.get(
        "write.metadata.metrics.default", ""
    )
    is_shredded = properties.get("write.parquet.shred-variants", "").lower() == "true"
    return is_shredded or metrics.lower() in ("none", "counts")


def _totals(metadata: MetadataJson) -> tuple[int | None, int | None, int | None]:
    """Rows, data files and bytes, as the current snapshot's summary counts them.

    Rows that deletes hide are counted by the summary still; so none are shown once there are any.
    """
    summary = metadata.current_summary
    if summary is None:
        return 0, 0, 0

    def number(key: str) -> int | None:
        return int(summary[key]) if key in summary else None

    position = number("total-position-deletes") or 0
    rows = number("total-records")
    if rows is not None:
        rows -= position
    if number("total-equality-deletes"):
        rows = None
    return rows, number("total-data-files"), number("total-files-size")


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
