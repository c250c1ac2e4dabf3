"""Delete rows of a table that are older than its policy says: whole partitions, nothing rewritten.

The time up to which rows go is rounded down to a boundary of the partitions: of a table that is
partitioned by day, a day goes when its last row is old enough. Rows without a time stay.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from neve import failpoints
from neve.lake.identifier import quote_identifier
from neve.upkeep.table_kind import TableKind

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.metadata_json import MetadataJson
    from neve.lake.table_ref import TableRef
    from neve.upkeep.layout import Partition
    from neve.upkeep.retention_policy import RetentionPolicy

logger = logging.getLogger(__name__)

_UNITS = ("hour", "day", "month", "year")
_TYPES = ("date", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns")
# A time without a zone may be of any: in UTC-12 clocks show what they showed in UTC 12 hours ago.
_FURTHEST_WEST = timedelta(hours=12)
# Rows that merges have written or read are told by the changelog, and by nothing else.
_KEPT_KINDS = (TableKind.MIRROR, TableKind.SIDE, TableKind.CHANGELOG)


@dataclass(frozen=True)
class RowAgePlan:
    """Which rows of a table are to be deleted.

    Args:
        before: rows with an earlier time go.
        skipped: why none are deleted; empty: they are.
    """

    table: str
    column: str = ""
    column_type: str = ""
    before: datetime | None = None
    reason: str = ""
    skipped: str = ""


@dataclass(frozen=True)
class DeletedRows:
    """What was deleted."""

    rows: int = 0
    files: int = 0


def plan_row_age(
    name: str, metadata: MetadataJson, policy: RetentionPolicy, now: float
) -> RowAgePlan | None:
    """Decide which rows go; None: no policy asks for it. Pure."""
    age = policy.delete_rows_after
    if age is None:
        return None
    if policy.kind in _KEPT_KINDS:
        return RowAgePlan(name, skipped=f"rows of a {policy.kind.value} follow from its changelog")
    fields = [_time_field(metadata, spec["fields"], age.column) for spec in _specs(metadata)]
    units = [unit for field in fields if field is not None for unit in [field[1]]]
    columns = {field[0] for field in fields if field is not None}
    if not units or len(units) < len(fields) or len(columns) > 1:
        column = age.column or "a time"
        return RowAgePlan(name, skipped=f"it is not partitioned by the hour or day of {column}")
    (column,) = columns
    kind = next(str(field["type"]) for field in metadata.fields if field["name"] == column)
    unit = max(units, key=_UNITS.index)
    oldest = datetime.fromtimestamp(now - age.after_seconds, timezone.utc)
    before = _floor(oldest if kind.startswith("timestamptz") else oldest - _FURTHEST_WEST, unit)
    reason = f"older than {timedelta(seconds=age.after_seconds)}, by whole {unit}s"
    return RowAgePlan(name, column, kind, before, reason)


def old_partitions(
    plan: RowAgePlan, metadata: MetadataJson, partitions: Iterable[Partition]
) -> list[Partition]:
    """Return the partitions whose rows a plan deletes. Pure."""
    if plan.before is None:
        return []
    ends = {}
    for spec in _specs(metadata):
        fields: Any = spec["fields"]
        for place, field in enumerate(fields):
            found = _time_field(metadata, [field], plan.column)
            if found is not None:
                ends[spec["spec-id"]] = (place, _ordinal(plan.before, found[1]))
                break
    old = []
    for spec_id, values in partitions:
        place, end = ends.get(spec_id, (0, 0))
        if spec_id in ends and isinstance(values[place], int) and values[place] < end:
            old.append((spec_id, values))
    return old


def delete_old_rows(lake: Lake, ref: TableRef, plan: RowAgePlan) -> DeletedRows:
    """Delete the rows that a plan names, whole files at a time. Atomic; idempotent.

    Iceberg repeats the commit if another writer was first; a commit of nothing is not made.
    """
    if plan.before is None:
        return DeletedRows()
    column = quote_identifier((plan.column,))
    # Iceberg takes a partition without a time for the oldest: its files would go without the first
    # condition.
    condition = f"{column} IS NOT NULL AND {column} < {_literal(plan)}"
    with lake.explaining():
        # A scan of an aligned range asks the manifests only.
        counted = lake.spark.sql(
            f"SELECT count(*) AS old_rows FROM {ref.quoted} WHERE {condition}"  # noqa: S608 - quoted
        ).collect()
        rows = int(counted[0]["old_rows"])
        if rows == 0:
            return DeletedRows()
        lake.spark.sql(f"DELETE FROM {ref.quoted} WHERE {condition}").collect()  # noqa: S608
    failpoints.reach("upkeep.rows_deleted")
    summary = lake.reader(ref.catalog).read(ref.identifier).current_summary or {}
    files = int(summary.get("deleted-data-files", 0))
    logger.info("%s: %d rows before %s are deleted", plan.table, rows, plan.before)
    return DeletedRows(rows, files)


def _specs(metadata: MetadataJson) -> list[dict[str, object]]:
    """Return the partition specs that files may have; a table without snapshots has none."""
    return [dict(spec) for spec in metadata.partition_specs]


def _time_field(
    metadata: MetadataJson, fields: object, column: str | None
) -> tuple[str, str] | None:
    """Return the column and the unit of the first partition field that is one of time."""
    if not isinstance(fields, list):
        return None
    types = {field["name"]: field["type"] for field in metadata.fields}
    for field in fields:
        name = metadata.column_names.get(field["source-id"])
        unit = field["transform"]
        if unit in _UNITS and types.get(name) in _TYPES and column in (None, name):
            return str(name), unit
    return None


def _floor(moment: datetime, unit: str) -> datetime:
    moment = moment.replace(minute=0, second=0, microsecond=0)
    if unit != "hour":
        moment = moment.replace(hour=0)
    if unit in ("month", "year"):
        moment = moment.replace(day=1)
    return moment.replace(month=1) if unit == "year" else moment


def _ordinal(moment: datetime, unit: str) -> int:
    """Return the number of a unit since 1970, as Iceberg counts partitions of time."""
    if unit in ("hour", "day"):
        return int(moment.timestamp()) // (3600 if unit == "hour" else 86_400)
    years = moment.year - 1970
    return years if unit == "year" else 12 * years + moment.month - 1


def _literal(plan: RowAgePlan) -> str:
    moment = plan.before
    if moment is None:
        raise ValueError(plan)
    if plan.column_type == "date":
        return f"DATE '{moment:%Y-%m-%d}'"
    if plan.column_type.startswith("timestamptz"):
        return f"TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S}+00:00'"
    return f"TIMESTAMP_NTZ '{moment:%Y-%m-%d %H:%M:%S}'"
