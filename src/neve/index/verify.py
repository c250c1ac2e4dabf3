"""Compare an index with its table: every row and tombstone has its entry, and there are no others.

The entries that must be there are gathered as a build gathers them, and compared bucket by bucket,
in tasks. Values of rows are never shown: a difference is told by file and position.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from neve.errors import CorruptionError, NotFoundError
from neve.index.build import row_parts, tombstone_parts
from neve.index.cache import BucketCache
from neve.index.current_root import find_root
from neve.index.entries import SEVERAL, TOMBSTONE, Entries, find_rows
from neve.index.indexed_table import observe
from neve.index.maintain import Progress
from neve.index.read_keys import Kind
from neve.index.resolve import resolve
from neve.index.root import Root
from neve.index.runs import RunReader, Runs, by_bucket, write_runs
from neve.index.search import IndexReader
from neve.lake.spark_tasks import runner_for

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.identifier import Identifier

logger = logging.getLogger(__name__)

MOST_EXAMPLES = 5
MISSING, EXTRA, MISPLACED, SEQUENCE, DUPLICATE = (
    "missing",
    "extra",
    "misplaced",
    "wrong sequence",
    "duplicate key",
)


@dataclass(frozen=True)
class Difference:
    """What is wrong, and where the row is, or where the index says that it is."""

    what: str
    file: str
    """Empty for a tombstone."""
    position: int


@dataclass(frozen=True)
class Verified:
    """What a comparison found, at the snapshot that the index is of."""

    table: str
    snapshot_id: int
    rows: int = 0
    tombstones: int = 0
    entries: int = 0
    missing: int = 0
    """Rows and tombstones without an entry."""
    extra: int = 0
    """Entries without a row or tombstone."""
    misplaced: int = 0
    wrong_sequence: int = 0
    duplicates: int = 0
    """Rows of a key that has another row."""
    corrupt: str | None = None
    """What of the index cannot be read."""
    examples: tuple[Difference, ...] = ()
    seconds: float = 0.0

    @property
    def differences(self) -> int:
        wrong = self.missing + self.extra + self.misplaced + self.wrong_sequence + self.duplicates
        return wrong + (self.corrupt is not None)


@dataclass
class _Compared:
    rows: int = 0
    tombstones: int = 0
    entries: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    examples: list[tuple[str, int, int]] = field(default_factory=list)
    corrupt: str | None = None

    def add(self, what: str, entries: Entries, wrong: npt.NDArray[np.bool_]) -> None:
        places = np.flatnonzero(wrong)
        self.counts[what] = self.counts.get(what, 0) + len(places)
        self.examples += [
            (what, int(entries.file[one]), int(entries.position[one]))
            for one in places[: MOST_EXAMPLES - len(self.examples)]
        ]


def verify(lake: Lake, identifier: Identifier, progress: Progress = logger.info) -> Verified:
    """Compare a mirror's index with the snapshot it is of.

    Raises:
        NotFoundError: there is no such table, or no index of it.
        UsageError: the table is no mirror.
        UnsupportedError: a file of it cannot be read as an index needs it.
    """
    started = time.monotonic()
    mirror = observe(lake, identifier)
    root, why = find_root(mirror)
    if root is None:
        raise NotFoundError(
            f"{mirror.name} has no index: {why}", hint=f"neve index build {mirror.name}"
        )
    then = mirror.at(root)
    files, tombstones = then.files(), then.tombstone_files()
    wide, ordinals = root.with_files(one.path for one in files)
    parts = [*row_parts(files, ordinals), *tombstone_parts(tombstones)]
    rows = sum(part.rows for part in parts)
    progress(f"{mirror.name}: comparing about {rows} rows with {root.rows} entries")
    runner = runner_for(lake, rows)
    runs = write_runs(runner, then.source_of(root), parts)
    try:
        compared = by_bucket(runner, runs, partial(_compare, runs, root), rows)
    finally:
        runs.delete()
    return _summed(mirror.name, wide, compared, time.monotonic() - started)


def _summed(table: str, root: Root, compared: Sequence[_Compared], seconds: float) -> Verified:
    def total(what: str) -> int:
        return sum(one.counts.get(what, 0) for one in compared)

    examples = [
        Difference(what, root.files[file] if file >= 0 else "", position)
        for one in compared
        for what, file, position in one.examples
    ]
    return Verified(
        table,
        root.snapshot_id,
        rows=sum(one.rows for one in compared),
        tombstones=sum(one.tombstones for one in compared),
        entries=sum(one.entries for one in compared),
        missing=total(MISSING),
        extra=total(EXTRA),
        misplaced=total(MISPLACED),
        wrong_sequence=total(SEQUENCE),
        duplicates=total(DUPLICATE),
        corrupt=next((one.corrupt for one in compared if one.corrupt), None),
        examples=tuple(examples[:MOST_EXAMPLES]),
        seconds=seconds,
    )


def _compare(runs: Runs, root: Root, buckets: Sequence[int]) -> _Compared:
    """Compare some buckets, in a task."""
    found = _Compared()
    wanted = RunReader(runs)
    has = IndexReader(root, runs.source.io(), BucketCache())
    for bucket in buckets:
        resolved = resolve(wanted.read(bucket, Kind.TOMBSTONES, Kind.ROWS), runs.source.bits)
        expected = resolved.entries
        duplicates = found.counts.get(DUPLICATE, 0) + resolved.duplicates
        found.counts[DUPLICATE] = duplicates
        is_buried = expected.file == TOMBSTONE
        found.rows += int((~is_buried).sum())
        found.tombstones += int(is_buried.sum())
        try:
            entries = has.read_bucket(bucket, runs.source.bits)
        except CorruptionError as error:
            found.corrupt = error.message
            continue
        found.entries += len(entries)
        _compare_bucket(found, expected, entries)
    return found


def _compare_bucket(found: _Compared, expected: Entries, entries: Entries) -> None:
    at = find_rows(entries.first, entries.second, expected.first, expected.second)
    back = find_rows(expected.first, expected.second, entries.first, entries.second)
    found.add(MISSING, expected, at < 0)
    found.add(EXTRA, entries, (back < 0) & (entries.file != SEVERAL))
    # An entry that says SEVERAL stays until the index is built anew, and has every key looked for.
    both = np.flatnonzero((at >= 0) & (entries.file[at] != SEVERAL if len(entries) else False))
    one, other = expected.take(both), entries.take(at[both])
    # The position of a tombstone says nothing.
    moved = (one.file != other.file) | ((one.position != other.position) & (one.file >= 0))
    differs = np.asarray(pc.not_equal(one.sequence, other.sequence), np.bool_)
    found.add(MISPLACED, one, moved)
    found.add(SEQUENCE, one, differs & ~moved)
