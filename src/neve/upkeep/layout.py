"""How the files of a table lie: sizes, ages, deletes and overlaps, from its manifests. Pure.

What is kept in memory is a few numbers for each file, and the paths of those that are candidates.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from math import inf
from typing import Any

from neve.lake.bounds import MICROSECONDS_OF, decode_bound, decode_microseconds
from neve.lake.manifests import Content, FileStatistics
from neve.lake.metadata_json import MetadataJson
from neve.upkeep.policy import CompactionPolicy
from neve.upkeep.position_deletes import PositionDeletes

HOUR_MICROSECONDS = 3_600_000_000
# A rewritten file whose rows lie further apart is one of a day, which is final.
_MOST_HOURS_OF_AN_HOUR = 2

Partition = tuple[int, tuple[Any, ...]]


@dataclass(frozen=True)
class TimeColumn:
    """The column by whose days or hours a table is partitioned."""

    field_id: int
    name: str
    type: str


@dataclass(frozen=True)
class SmallFile:
    """A file that may be rewritten."""

    path: str
    partition: Partition
    bytes: int
    records: int
    deleted: int
    is_rewritten: bool
    first_hour: int | None
    hour: int | None
    """Hours since 1970 of its earliest and latest row; None: the table is not partitioned by time,
    the file has no statistics, or shares rows of many days."""
    is_shared: bool = False
    """Whether it has rows of many days, though its table is partitioned by time."""

    @property
    def is_of_a_day(self) -> bool:
        """Whether its rows are of several hours."""
        if self.hour is None or self.first_hour is None:
            return False
        return self.hour - self.first_hour >= _MOST_HOURS_OF_AN_HOUR

    @property
    def writes(self) -> int:
        """How often its rows were written, at most: first, as an hour's, and as a day's."""
        return 1 + self.is_rewritten + (self.is_rewritten and self.is_of_a_day)


@dataclass
class Layout:
    """The files of one snapshot."""

    files: int = 0
    bytes: int = 0
    records: int = 0
    small_files: int = 0
    small_bytes: int = 0
    delete_files: int = 0
    surplus_delete_files: int = 0
    """Position delete files that `rewrite_position_delete_files` saves; vectors are none."""
    deleted_rows: int = 0
    files_with_deletes: int = 0
    bytes_by_partition: dict[Partition, int] = field(default_factory=dict)
    candidates: list[SmallFile] = field(default_factory=list)
    files_per_key: float | None = None
    """How many files hold a value of the leading sort column, within an hour or a partition."""
    earliest: float = inf
    """The earliest time by which rows may be deleted, in microseconds since 1970; minus infinity:
    a file does not tell."""
    row_writes: int = 0

    @property
    def skew(self) -> float:
        """The largest partition against the mean."""
        sizes = self.bytes_by_partition.values()
        return max(sizes) * len(sizes) / self.bytes if self.bytes and sizes else 1.0

    @property
    def writes_per_row(self) -> float:
        """How often a row was written so far, at most, as the manifests of hours and days tell."""
        return self.row_writes / self.records if self.records else 1.0


def time_column(metadata: MetadataJson) -> TimeColumn | None:
    """Return the time column that the table is partitioned by; None: it is not."""
    types = {each["id"]: each["type"] for each in metadata.fields}
    for each in metadata.partition_fields:
        type_ = types.get(each["source-id"])
        if each["transform"] in ("day", "hour") and type_ in MICROSECONDS_OF:
            name = metadata.column_names[each["source-id"]]
            return TimeColumn(each["source-id"], name, str(type_))
    return None


def shared_specs(metadata: MetadataJson) -> frozenset[int]:
    """Return the ids of the specs whose files have rows of many partitions of time (`far_days`)."""
    if time_column(metadata) is None or len(metadata.partition_fields) != 1:
        return frozenset()
    specs = metadata.partition_specs
    return frozenset(int(each["spec-id"]) for each in specs if not each["fields"])


def leading_sort_column(metadata: MetadataJson) -> tuple[int, Any] | None:
    """Return the id and the type of the first column that the table is sorted by."""
    types = {each["id"]: each["type"] for each in metadata.fields}
    for each in metadata.sort_fields:
        if each["transform"] == "identity" and each["source-id"] in types:
            return each["source-id"], types[each["source-id"]]
        return None
    return None


def wanted_bounds(metadata: MetadataJson, aged: TimeColumn | None = None) -> set[int]:
    """Return the ids of the columns whose bounds `observe_layout` asks for."""
    leading = leading_sort_column(metadata)
    times = (each.field_id for each in (time_column(metadata), aged) if each is not None)
    return {*times, *((leading[0],) if leading else ())}


def observe_layout(
    metadata: MetadataJson,
    deletes: Iterable[FileStatistics],
    data: Iterable[FileStatistics],
    policy: CompactionPolicy,
    aged: TimeColumn | None = None,
) -> Layout:
    """Look at each delete file and each data file once.

    Args:
        aged: the column by which rows may be deleted.
    """
    layout = Layout()
    deleted: dict[str, int] = defaultdict(int)
    positions = PositionDeletes(metadata)
    for each in deletes:
        layout.delete_files += 1
        if each.file.content is Content.POSITION_DELETES:
            layout.deleted_rows += each.file.records
            positions.add(each.file)
            if each.file.data_file:
                deleted[each.file.data_file] += each.file.records
    time, leading = time_column(metadata), leading_sort_column(metadata)
    shared = shared_specs(metadata)
    sizes: dict[Partition, int] = defaultdict(int)
    ranges: dict[Any, list[tuple[Any, Any]]] = defaultdict(list)
    for each in data:
        positions.see(each.file.path)
        file = _candidate(each, time, deleted.get(each.file.path, 0), shared)
        layout.files += 1
        layout.bytes += file.bytes
        layout.records += file.records
        layout.row_writes += file.records * file.writes
        layout.files_with_deletes += file.deleted > 0
        sizes[file.partition] += file.bytes
        is_small = file.bytes < policy.small_bytes
        layout.small_files += is_small
        layout.small_bytes += file.bytes if is_small else 0
        if is_small or file.deleted >= policy.delete_ratio * max(file.records, 1):
            layout.candidates.append(file)
        if aged is not None:
            layout.earliest = min(layout.earliest, _earliest(each, aged))
        if leading:
            ranges[file.partition, file.hour].append(_range(each, *leading))
    layout.bytes_by_partition = dict(sizes)
    layout.surplus_delete_files = positions.surplus()
    layout.files_per_key = _files_per_key(ranges.values()) if leading and layout.files else None
    return layout


def _candidate(
    each: FileStatistics, time: TimeColumn | None, deleted: int, shared: frozenset[int]
) -> SmallFile:
    first_hour = hour = None
    is_shared = each.file.spec_id in shared
    if time is not None and not is_shared:
        lower = decode_microseconds(time.type, each.lower.get(time.field_id))
        upper = decode_microseconds(time.type, each.upper.get(time.field_id))
        if lower is not None and upper is not None:
            first_hour, hour = lower // HOUR_MICROSECONDS, upper // HOUR_MICROSECONDS
    file = each.file
    return SmallFile(
        file.path,
        (file.spec_id, file.partition),
        file.bytes,
        file.records,
        deleted,
        each.is_rewritten,
        first_hour,
        hour,
        is_shared,
    )


def _earliest(each: FileStatistics, time: TimeColumn) -> float:
    lower = each.lower.get(time.field_id)
    known = (
        decode_bound(time.type, lower)
        if time.type == "date"
        else decode_microseconds(time.type, lower)
    )
    if known is None:
        return -inf
    return float(known * 24 * HOUR_MICROSECONDS if time.type == "date" else known)


def _range(each: FileStatistics, field_id: int, type_: Any) -> tuple[Any, Any]:
    lower, upper = (decode_bound(type_, side.get(field_id)) for side in (each.lower, each.upper))
    return lower, upper


def _files_per_key(cells: Iterable[Sequence[tuple[Any, Any]]]) -> float:
    """Return the mean number of files whose ranges meet that of a file, itself included.

    A file without bounds is met by all.
    """
    met = files = 0
    for cell in cells:
        known = [(lower, upper) for lower, upper in cell if lower is not None and upper is not None]
        lowers, uppers = sorted(each[0] for each in known), sorted(each[1] for each in known)
        unknown = len(cell) - len(known)
        files += len(cell)
        met += unknown * len(cell)
        for lower, upper in known:
            met += bisect_right(lowers, upper) - bisect_left(uppers, lower) + unknown
    return met / files


def partition_text(metadata: MetadataJson, partition: Partition) -> str:
    """Write a partition as Iceberg names its directory; nothing for a table without any."""
    spec_id, values = partition
    fields: Sequence[Mapping[str, Any]] = next(
        (each["fields"] for each in metadata.partition_specs if each["spec-id"] == spec_id), ()
    )
    return "/".join(
        f"{each['name']}={_value_text(each['transform'], value)}"
        for each, value in zip(fields, values, strict=False)
    )


def _value_text(transform: str, value: Any) -> str:
    if isinstance(value, int) and transform == "day":
        return hour_text(24 * value)[:10]
    if isinstance(value, int) and transform == "hour":
        return hour_text(value)
    return str(value)


def time_literal(type_: str, moment: datetime) -> str:
    """Write a moment in SQL as a value of a column's type: Spark casts no column to compare it."""
    if type_ == "date":
        return f"DATE '{moment:%Y-%m-%d}'"
    if type_.startswith("timestamptz"):
        return f"TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S}+00:00'"
    return f"TIMESTAMP_NTZ '{moment:%Y-%m-%d %H:%M:%S}'"


def hour_text(hour: int) -> str:
    """Write an hour, counted since 1970."""
    try:
        return f"{datetime.fromtimestamp(hour * 3600, timezone.utc):%Y-%m-%d %H:00}"
    except (ValueError, OverflowError, OSError):
        return f"{hour} h"  # Of a year that Python's calendar does not have.
