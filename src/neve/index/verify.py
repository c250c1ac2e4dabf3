"""Compare an index with its table: every row and tombstone has its entry, and there are no others.

Tasks make the entries that must be there as a build does, and compare them bucket by bucket. Values
of rows are never shown: a difference is reported by file and position.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from neve.errors import CorruptionError, NotFoundError
from neve.index.cache import BucketCache
from neve.index.current_root import find_root
from neve.index.entries import SEVERAL, TOMBSTONE, Entries, Mask, concat_entries, find_rows
from neve.index.indexed_table import observe
from neve.index.maintain import Progress
from neve.index.read_keys import Kind
from neve.index.refresh import row_parts, tombstone_parts
from neve.index.resolve import resolve
from neve.index.root import Root
from neve.index.search import IndexReader
from neve.index.shuffle import Shuffled, shuffle
from neve.lake.spark_tasks import runner_for

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.identifier import Identifier

logger = logging.getLogger(__name__)

MOST_EXAMPLES = 5


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
    # By the names of `Verified`.
    counts: Counter[str] = field(default_factory=Counter)
    examples: list[tuple[str, int, int]] = field(default_factory=list)
    corrupt: str | None = None

    def add(self, what: str, entries: Entries, is_wrong: Mask) -> None:
        places = np.flatnonzero(is_wrong)
        self.counts[what] += len(places)
        self.examples += [
            (what, int(entries.file[place]), int(entries.position[place]))
            for place in places[: MOST_EXAMPLES - len(self.examples)]
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
    wide, ordinals = root.with_files(file.path for file in files)
    source = then.source_of(root)
    parts = [*row_parts(files, ordinals), *tombstone_parts(tombstones, source)]
    rows = sum(part.rows for part in parts)
    progress(f"{mirror.name}: comparing about {rows} rows with {root.rows} entries")
    compared = shuffle(runner_for(lake, rows), source, parts, partial(_compare, root))
    return _summed(mirror.name, wide, compared, time.monotonic() - started)


def _summed(table: str, root: Root, compared: Sequence[_Compared], seconds: float) -> Verified:
    total = sum((part.counts for part in compared), Counter[str]())
    examples = [
        Difference(what.replace("_", " "), root.files[file] if file >= 0 else "", position)
        for part in compared
        for what, file, position in part.examples
    ]
    return Verified(
        table,
        root.snapshot_id,
        rows=total["rows"],
        tombstones=total["tombstones"],
        entries=total["entries"],
        missing=total["missing"],
        extra=total["extra"],
        misplaced=total["misplaced"],
        wrong_sequence=total["wrong_sequence"],
        duplicates=total["duplicates"],
        corrupt=next((part.corrupt for part in compared if part.corrupt), None),
        examples=tuple(examples[:MOST_EXAMPLES]),
        seconds=seconds,
    )


def _compare(root: Root, shuffled: Shuffled) -> _Compared:
    """Compare some buckets, in a task."""
    compared = _Compared()
    bits = shuffled.source.bits
    index = IndexReader(root, shuffled.source.io(), BucketCache())
    for bucket, read in shuffled.read(Kind.TOMBSTONES, Kind.ROWS):
        resolved = resolve(concat_entries(read), bits)
        expected = resolved.entries
        tombstones = int((expected.file == TOMBSTONE).sum())
        compared.counts["rows"] += len(expected) - tombstones
        compared.counts["tombstones"] += tombstones
        compared.counts["duplicates"] += resolved.duplicates
        try:
            entries = index.read_bucket(bucket, bits)
        except CorruptionError as error:
            compared.corrupt = error.message
            continue
        if shuffled.source.forget_before is not None:
            is_old = entries.position < shuffled.source.forget_before
            entries = entries.take(~(is_old & (entries.file == TOMBSTONE)))
        compared.counts["entries"] += len(entries)
        _compare_bucket(compared, expected, entries)
    return compared


def _compare_bucket(compared: _Compared, expected: Entries, entries: Entries) -> None:
    at = find_rows(entries.first, entries.second, expected.first, expected.second)
    back = find_rows(expected.first, expected.second, entries.first, entries.second)
    compared.add("missing", expected, at < 0)
    # SEVERAL stays until the index is built anew, and has the key decided by a scan: never wrong.
    compared.add("extra", entries, (back < 0) & (entries.file != SEVERAL))
    both = np.flatnonzero(at >= 0)
    both = both[entries.file[at[both]] != SEVERAL]
    wanted, present = expected.take(both), entries.take(at[both])
    # Of a tombstone it is a time.
    is_elsewhere = (wanted.position != present.position) & (wanted.file >= 0)
    is_misplaced = (wanted.file != present.file) | is_elsewhere
    differs = np.asarray(pc.not_equal(wanted.sequence, present.sequence), np.bool_)
    compared.add("misplaced", wanted, is_misplaced)
    compared.add("wrong_sequence", wanted, differs & ~is_misplaced)
