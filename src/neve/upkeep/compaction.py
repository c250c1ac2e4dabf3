"""Which files are rewritten together, and why. Pure.

Tables that are partitioned by time: a closed hour is rewritten once, into files in the table's
order; when the day is over, hours that are small are rewritten once more, into files of the day.
The open hour is left alone. So each row is rewritten at most twice.

Other tables: files of about the same size are rewritten together, so that a row is rewritten once
for each fourfold growth of its file; and files of which many rows are deleted. So are files that
share rows of far-off days, whose rows go into their days then (`lake/far_days.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from neve.lake.far_days import days_of_a_rewrite
from neve.upkeep.layout import Partition, SmallFile, hour_text
from neve.upkeep.policy import CompactionPolicy

_HOUR = 3600
_DAY_HOURS = 24
# So many hours make a file of a day lie further apart than that.
_LEAST_HOURS_OF_A_DAY = 4
_SMALLEST_TIER = 64 * 1024


@dataclass(frozen=True)
class FileGroup:
    """Files of one partition that are rewritten together: committed all or none.

    Args:
        is_closed: whether they are of an hour or day that is over: hardly anybody deletes rows of
            them meanwhile.
        is_shared: whether they have rows of many days, which go into their days.
    """

    partition: Partition
    why: str
    paths: tuple[str, ...]
    bytes: int
    records: int
    deleted: int
    output_files: int
    is_closed: bool = False
    is_shared: bool = False

    @property
    def most_days(self) -> int:
        """How many days get files of their own, of rows that share files; 0: they share none."""
        return days_of_a_rewrite(len(self.paths), self.bytes) if self.is_shared else 0

    def halves(self) -> tuple[FileGroup, ...]:
        """Return two smaller groups; none if there is only one file."""
        if len(self.paths) < 2:
            return ()
        middle = len(self.paths) // 2
        return tuple(
            replace(
                self,
                paths=paths,
                bytes=self.bytes * len(paths) // len(self.paths),
                records=self.records * len(paths) // len(self.paths),
                deleted=self.deleted * len(paths) // len(self.paths),
                output_files=max(1, self.output_files // 2),
            )
            for paths in (self.paths[:middle], self.paths[middle:])
        )


def plan_groups(
    candidates: Iterable[SmallFile], policy: CompactionPolicy, now: float
) -> list[FileGroup]:
    """Return what is to be rewritten, the oldest and smallest first."""
    timed: list[SmallFile] = []
    others: list[SmallFile] = []
    deleted: list[SmallFile] = []
    for file in candidates:
        if file.deleted >= policy.delete_ratio * max(file.records, 1):
            deleted.append(file)
        elif file.hour is not None:
            timed.append(file)
        else:
            others.append(file)
    groups = [*_of_hours(timed, policy, now), *_of_deletes(deleted, policy)]
    return groups + list(_of_sizes(others, policy))


def _of_hours(
    files: Sequence[SmallFile], policy: CompactionPolicy, now: float
) -> Iterator[FileGroup]:
    settled = int((now - policy.settle_seconds) // _HOUR)
    hours: dict[tuple[Partition, int], list[SmallFile]] = defaultdict(list)
    for file in files:
        if file.hour is not None and file.hour < settled and not file.is_rewritten:
            hours[file.partition, file.hour].append(file)
    taken: set[str] = set()
    for (_, hour), raw in sorted(hours.items(), key=lambda each: each[0][1]):
        if len(raw) >= policy.min_files and not policy.zorder:
            taken.update(file.path for file in raw)
            yield from _chunks(raw, f"closed hour {hour_text(hour)}", policy)
    yield from _of_days([file for file in files if file.path not in taken], policy, settled)


def _of_days(
    files: Iterable[SmallFile], policy: CompactionPolicy, settled: int
) -> Iterator[FileGroup]:
    """Group what is left of closed days: hours that are small, and files too few for an hour."""
    days: dict[tuple[Partition, int], list[SmallFile]] = defaultdict(list)
    for file in files:
        if file.hour is not None and file.first_hour is not None:
            day = file.hour // _DAY_HOURS
            is_over = (day + 1) * _DAY_HOURS <= settled
            if is_over and not (file.is_rewritten and file.is_of_a_day):
                days[file.partition, day].append(file)
    for (_, day), small in sorted(days.items(), key=lambda each: each[0][1]):
        hours = {file.hour for file in small}
        is_first_time = not any(file.is_rewritten for file in small)
        if len(small) >= policy.min_files and (
            len(hours) >= _LEAST_HOURS_OF_A_DAY or is_first_time
        ):
            why = f"closed day {hour_text(day * _DAY_HOURS)[:10]}"
            yield from _chunks(sorted(small, key=lambda file: file.hour or 0), why, policy)


def _of_deletes(files: Iterable[SmallFile], policy: CompactionPolicy) -> Iterator[FileGroup]:
    partitions: dict[Partition, list[SmallFile]] = defaultdict(list)
    for file in files:
        partitions[file.partition].append(file)
    for some in partitions.values():
        rows, deleted = (
            sum(getattr(file, name) for file in some) for name in ("records", "deleted")
        )
        why = f"{deleted:,} of {rows:,} rows are deleted"
        yield from _chunks(some, why, policy, fewest=1)


def _of_sizes(files: Iterable[SmallFile], policy: CompactionPolicy) -> Iterator[FileGroup]:
    tiers: dict[tuple[int, Partition], list[SmallFile]] = defaultdict(list)
    for file in files:
        tiers[_tier(file.bytes), file.partition].append(file)
    for (tier, _), some in sorted(tiers.items(), key=lambda each: each[0][0]):
        if len(some) >= policy.min_files:
            limit = _SMALLEST_TIER * 4 ** (tier + 1) // 1024
            kind = "files of many days" if some[0].is_shared else "files"
            yield from _chunks(some, f"{len(some)} {kind} below {limit:,} KiB", policy)


def _tier(size: int) -> int:
    return (max(size // _SMALLEST_TIER, 1).bit_length() - 1) // 2


def _chunks(
    files: Sequence[SmallFile], why: str, policy: CompactionPolicy, fewest: int = 2
) -> Iterator[FileGroup]:
    """Make groups of at most so many bytes, but of so many files at least: one is not joined."""
    some: list[SmallFile] = []
    size = 0
    for file in files:
        if len(some) >= fewest and size + file.bytes > policy.max_group_bytes:
            yield _group(some, why, policy)
            some, size = [], 0
        some.append(file)
        size += file.bytes
    if len(some) >= fewest:
        yield _group(some, why, policy)


def _group(files: Sequence[SmallFile], why: str, policy: CompactionPolicy) -> FileGroup:
    size = sum(file.bytes for file in files)
    return FileGroup(
        files[0].partition,
        why,
        tuple(file.path for file in files),
        size,
        sum(file.records for file in files),
        sum(file.deleted for file in files),
        policy.files_for(size),
        files[0].hour is not None and not any(file.deleted for file in files),
        files[0].is_shared,
    )
