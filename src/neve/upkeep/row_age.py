"""Delete rows of a table that are older than its policy says: whole files where it is possible.

The time up to which rows go is rounded down to a boundary of the partitions: of a table that is
partitioned by day, a day goes when its last row is old enough. Where files are not partitioned by
the time, it is rounded down to the day, so that each is rewritten at most once a day. Rows without
a time stay.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from neve import failpoints
from neve.ages import age_text
from neve.lake.identifier import quote_identifier
from neve.upkeep.layout import TimeColumn, time_literal
from neve.upkeep.table_kind import TableKind

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.metadata_json import MetadataJson
    from neve.lake.table_ref import TableRef
    from neve.upkeep.layout import Layout, Partition
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
        other_specs: ids of the specs that are not by the time; none: whole partitions go.
        is_mixed: whether the table has specs of both kinds.
        skipped: why none are deleted; empty: they are.
    """

    table: str
    column: str = ""
    column_type: str = ""
    before: datetime | None = None
    reason: str = ""
    other_specs: tuple[int, ...] = ()
    is_mixed: bool = False
    skipped: str = ""

    @property
    def effect(self) -> str:
        files = "whole files, nothing is rewritten"
        if self.other_specs:
            files = "files that have later rows, too, are rewritten"
        return f"rows with {self.column} before {self.before:%Y-%m-%d %H:%M} go: {files}"


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
    column = aged_column(metadata, policy)
    if isinstance(column, str):
        return RowAgePlan(name, skipped=column)
    others, units = [], ["day"]
    specs = _specs(metadata)
    for spec in specs:
        found = _time_field(metadata, spec["fields"], column.name)
        if found is None:
            others.append(int(str(spec["spec-id"])))
        else:
            units.append(found[1])
    # Only where no file is rewritten, it may be more often than once a day.
    unit = max(units if others else units[1:], key=_UNITS.index)
    oldest = datetime.fromtimestamp(now - age.after_seconds, timezone.utc)
    has_zone = column.type.startswith("timestamptz")
    before = _floor(oldest if has_zone else oldest - _FURTHEST_WEST, unit)
    reason = f"older than {age_text(age.after_seconds)}, by whole {unit}s"
    is_mixed = 0 < len(others) < len(specs)
    return RowAgePlan(name, column.name, column.type, before, reason, tuple(others), is_mixed)


def aged_column(metadata: MetadataJson, policy: RetentionPolicy) -> TimeColumn | str:
    """Return the column whose age decides, or why there is none. Pure."""
    age = policy.delete_rows_after
    if age is None:
        return "no policy asks for it"
    name = age.column
    if name is None:
        found = [_time_field(metadata, spec["fields"], None) for spec in _specs(metadata)]
        names = {field[0] for field in found if field is not None}
        if len(names) != 1:
            return "its policy has to name a time: delete_rows_after: {column: ..., after: ...}"
        (name,) = names
    field = next((each for each in metadata.fields if each["name"] == name), None)
    if field is None:
        return f"it has no column {name}"
    if field["type"] not in _TYPES:
        return f"its column {name} is no time"
    return TimeColumn(field["id"], name, str(field["type"]))


def has_old_rows(plan: RowAgePlan, metadata: MetadataJson, layout: Layout) -> bool:
    """Tell whether a table may have rows that a plan deletes. Pure."""
    if plan.before is None:
        return False
    if not plan.other_specs:
        return bool(old_partitions(plan, metadata, layout.bytes_by_partition))
    return layout.earliest < plan.before.timestamp() * 1_000_000


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
    """Delete the rows that a plan names. Idempotent; atomic, but where specs are of both kinds two
    commits may be needed.

    Iceberg repeats a commit if another writer was first; a commit of nothing is not made.
    """
    rows = files = 0
    for condition in _conditions(plan, ref):
        with lake.explaining():
            # A scan of an aligned range asks the manifests only.
            counted = lake.spark.sql(
                f"SELECT count(*) AS old_rows FROM {ref.quoted} WHERE {condition}"  # noqa: S608 - quoted
            ).collect()
            if not counted[0]["old_rows"]:
                continue
            lake.progress(
                f"{plan.table}: deleting {counted[0]['old_rows']:,} rows with {plan.column} before "
                f"{plan.before:%Y-%m-%d %H:%M}: {plan.reason}"
            )
            lake.spark.sql(f"DELETE FROM {ref.quoted} WHERE {condition}").collect()  # noqa: S608
        failpoints.reach("upkeep.rows_deleted")
        rows += int(counted[0]["old_rows"])
        summary = lake.reader(ref.catalog).read_document(ref.identifier).current_summary or {}
        files += int(summary.get("deleted-data-files", 0))
    if rows:
        logger.info("%s: %d rows before %s are deleted", plan.table, rows, plan.before)
    return DeletedRows(rows, files)


def _conditions(plan: RowAgePlan, ref: TableRef) -> Iterator[str]:
    """Yield what is deleted, one commit after the other.

    A statement that has to rewrite one file reads all that it deletes. So files that are not
    partitioned by the time come first, by themselves: the others then go without being read.
    """
    if plan.before is None:
        return
    column = quote_identifier((plan.column,))
    # Iceberg takes a partition without a time for the oldest: its files would go without the first
    # condition.
    old = f"{column} IS NOT NULL AND {column} < {time_literal(plan.column_type, plan.before)}"
    if plan.is_mixed:
        specs = ", ".join(map(str, plan.other_specs))
        files = f"SELECT file_path FROM {ref.quoted}.data_files WHERE spec_id IN ({specs})"  # noqa: S608 - numbers
        yield f"{old} AND _file IN ({files})"
    yield old


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
