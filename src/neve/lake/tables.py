"""What a table is, read from its metadata alone: no data file is opened, no JVM started."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from neve.lake.identifier import Identifier


@dataclass(frozen=True)
class TableSummary:
    """One line of `neve tables`."""

    table: str
    format_version: int | None
    rows: int | None
    files: int | None
    bytes: int | None
    snapshots: int | None
    updated_at: datetime | None


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
    current_snapshot_id: int | None
    snapshots: int
    rows: int | None
    files: int | None
    bytes: int | None
    updated_at: datetime
    refs: dict[str, int]
    properties: dict[str, str]


def summarize(identifier: Identifier, table: Table | None) -> TableSummary:
    """Sum a table up; one that could not be loaded keeps its name only."""
    name = ".".join(identifier)
    if table is None:
        return TableSummary(name, None, None, None, None, None, None)
    totals = _totals(table)
    return TableSummary(
        name,
        table.metadata.format_version,
        *totals,
        snapshots=len(table.metadata.snapshots),
        updated_at=_time(table.metadata.last_updated_ms),
    )


def describe(identifier: Identifier, table: Table) -> TableDescription:
    """Describe a table's present state."""
    schema, metadata = table.schema(), table.metadata
    rows, files, size = _totals(table)
    return TableDescription(
        table=".".join(identifier),
        uuid=str(metadata.table_uuid),
        location=table.location(),
        format_version=metadata.format_version,
        columns=tuple(
            Column(field.name, str(field.field_type), field.required, field.doc)
            for field in schema.fields
        ),
        partition_by=tuple(
            f"{field.transform}({schema.find_column_name(field.source_id)})"
            for field in table.spec().fields
        ),
        sort_by=tuple(
            f"{schema.find_column_name(field.source_id)} {field.direction}"
            for field in table.sort_order().fields
        ),
        current_snapshot_id=metadata.current_snapshot_id,
        snapshots=len(metadata.snapshots),
        rows=rows,
        files=files,
        bytes=size,
        updated_at=_time(metadata.last_updated_ms),
        refs={name: ref.snapshot_id for name, ref in metadata.refs.items()},
        properties=dict(sorted(table.properties.items())),
    )


def _totals(table: Table) -> tuple[int | None, int | None, int | None]:
    """Rows, data files and bytes, as the current snapshot's summary counts them.

    Rows that deletes hide are counted by the summary still; so none are shown once there are any.
    """
    snapshot = table.current_snapshot()
    if snapshot is None:
        return 0, 0, 0
    summary = snapshot.summary
    found = dict(summary.additional_properties) if summary else {}

    def number(key: str) -> int | None:
        return int(found[key]) if key in found else None

    position = number("total-position-deletes") or 0
    rows = number("total-records")
    if rows is not None:
        rows -= position
    if number("total-equality-deletes"):
        rows = None
    return rows, number("total-data-files"), number("total-files-size")


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
