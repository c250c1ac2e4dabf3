"""Keep the index of a mirror: build it, bring it up to date, merge it, remove files not needed.

Everything here may be killed and repeated: a root counts from the commit on that names it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from pyiceberg.table.snapshots import Operation

from neve.errors import CorruptionError, StorageError, UnsupportedError
from neve.index.compaction import compact_buckets, plan_compaction, with_compacted
from neve.index.current_root import find_root, property_of, register
from neve.index.files import list_files
from neve.index.indexed_table import Mirror, observe
from neve.index.refresh import build_root, refresh_root
from neve.index.root import Root, read_shard_paths
from neve.index.shard import bucket_ranges
from neve.index.shuffle import SHARD_ROWS
from neve.lake.ancestry import ancestors
from neve.lake.deletion import delete_paths
from neve.lake.live_files import LiveFile, changed_files
from neve.lake.manifests import in_parallel
from neve.lake.spark_tasks import LocalTasks, SparkTasks, runner_for

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.identifier import Identifier

logger = logging.getLogger(__name__)

Progress = Callable[[str], None]

FRESH, REFRESHED, REBUILT = "fresh", "refreshed", "rebuilt"
# Merging so many entries takes less time than a job of Spark.
_MERGED_HERE = 1024 * 1024
# What only adds rows, or moves them.
_KEEPING = (Operation.APPEND, Operation.REPLACE)
GRACE_SECONDS = 3600.0
"""Longer than a merge takes from the first shard it writes to its commit."""
_LISTING_SECONDS = 600.0


@dataclass(frozen=True)
class Refreshed:
    """An index of a mirror as it is now, and what that took."""

    mirror: Mirror
    root: Root
    outcome: str
    """fresh, refreshed or rebuilt"""
    why: str = ""
    files_indexed: int = 0
    """Data files of which rows were read; of some only those that a vector deletes now."""
    files_removed: int = 0
    compacted: bool = False
    seconds: float = 0.0

    @property
    def rebuilt(self) -> bool:
        return self.outcome == REBUILT


def build(
    lake: Lake,
    identifier: Identifier,
    progress: Progress = logger.info,
    retention_seconds: float | None = None,
) -> Refreshed:
    """Make the index of a mirror anew and name it in the table.

    Args:
        retention_seconds: how long deletes are remembered; None: as the configuration says.

    Raises:
        NotFoundError: there is no such table.
        UsageError: it is no mirror.
        UnsupportedError: it cannot be indexed.
        ConflictError: the table changed while its index was being named.
    """
    mirror = observe(lake, identifier, retention_seconds)
    return _named(lake, rebuilt(lake, mirror, "it was asked for", progress))


def refresh(lake: Lake, identifier: Identifier, progress: Progress = logger.info) -> Refreshed:
    """Bring an index to `main` by what changed; build it anew only where that cannot be said.

    Raises as `build`.
    """
    index = refreshed(lake, observe(lake, identifier), progress)
    return index if index.outcome == FRESH else _named(lake, _small(lake, index, progress))


def compact(lake: Lake, identifier: Identifier, progress: Progress = logger.info) -> Refreshed:
    """Bring an index to `main` and merge all its generations.

    Raises as `build`.
    """
    index = refreshed(lake, observe(lake, identifier), progress)
    small = _small(lake, index, progress, force=True)
    return small if small is index and index.outcome == FRESH else _named(lake, small)


def _small(lake: Lake, index: Refreshed, progress: Progress, *, force: bool = False) -> Refreshed:
    """Return an index whose generations are merged; the same one if there was nothing to merge."""
    started = time.monotonic()
    try:
        root = compacted(lake, index.mirror, index.root, force=force)
    except CorruptionError as error:
        return rebuilt(lake, index.mirror, error.message, progress)
    if root is index.root:
        return index
    seconds = index.seconds + time.monotonic() - started
    return replace(index, root=root, compacted=True, seconds=seconds)


def refreshed(
    lake: Lake, mirror: Mirror, progress: Progress = logger.info, *, may_rebuild: bool = True
) -> Refreshed:
    """Return an index of the mirror's `main` that nothing names yet, for a commit of the caller's.

    It may have many generations: they are merged once the commit is made, and nobody waits.

    Raises:
        UnsupportedError: the mirror cannot be indexed.
        CorruptionError: it would have to be built anew, and may not.
    """

    def anew(why: str) -> Refreshed:
        if not may_rebuild:
            raise CorruptionError(f"there is no index to go on from: {why}")
        return rebuilt(lake, mirror, why, progress)

    started = time.monotonic()
    root, why = find_root(mirror)
    if root is None:
        return anew(why)
    if root.snapshot_id == mirror.main_id:
        return Refreshed(mirror, root, FRESH)
    added_tombstones = _tombstones_added_since(mirror, root)
    if added_tombstones is None:
        return anew("tombstones were removed or rolled back")
    try:
        changes = changed_files(mirror.table, root.snapshot_id, mirror.main_id)
        after = refresh_root(
            partial(runner_for, lake),
            mirror.source_of(root),
            root,
            changes,
            added_tombstones,
            mirror.tombstone_files,
        )
    except (CorruptionError, FileNotFoundError) as error:
        # A manifest that is missing was expired a moment ago.
        return anew(str(error))
    return Refreshed(
        mirror,
        mirror.pinned(after),
        REFRESHED,
        f"it was of snapshot {root.snapshot_id}",
        files_indexed=len(changes.added) + len(changes.vectors),
        files_removed=len(changes.removed),
        seconds=time.monotonic() - started,
    )


def rebuilt(lake: Lake, mirror: Mirror, why: str, progress: Progress) -> Refreshed:
    """Return an index of the mirror's `main` made anew, that nothing names yet.

    Raises:
        UnsupportedError: the mirror cannot be indexed.
    """
    started = time.monotonic()
    files, tombstones = mirror.files(), mirror.tombstone_files()
    rows = sum(file.record_count for file in (*files, *tombstones))
    progress(f"{mirror.name}: indexing {len(files)} files, about {rows} rows: {why}")
    runner = runner_for(lake, rows)
    empty = mirror.empty_root()
    root = build_root(runner, mirror.source_of(empty), empty, files, tombstones)
    seconds = time.monotonic() - started
    return Refreshed(mirror, root, REBUILT, why, files_indexed=len(files), seconds=seconds)


def compacted(lake: Lake, mirror: Mirror, root: Root, *, force: bool = False) -> Root:
    """Merge generations where the policy says so, with `force` all; return the root after that.

    The same root: there was nothing to merge. Raises CorruptionError.
    """
    while plan := plan_compaction(root, force=force):
        runner = LocalTasks() if plan.rows <= _MERGED_HERE else SparkTasks(lake)
        ranges = bucket_ranges(plan.bits, max(runner.parallelism, -(-plan.rows // SHARD_ROWS)))
        source = mirror.source_of(root)
        work = partial(compact_buckets, root.to_json(), source.io_properties, plan, source.location)
        root = with_compacted(root, plan, runner.run(work, ranges))
    return root


def _named(lake: Lake, index: Refreshed) -> Refreshed:
    register(lake, index.mirror, index.root)
    remove_unreferenced(observe(lake, index.mirror.identifier))
    return index


def _tombstones_added_since(mirror: Mirror, root: Root) -> list[LiveFile] | None:
    """Return files of tombstones that were added since; None if others were removed."""
    before, after = root.tombstones_snapshot_id, mirror.tombstones_id
    if before == after:
        return []
    if mirror.tombstones is None or after is None:
        return None
    if before is None:
        return mirror.tombstone_files()
    metadata = mirror.tombstones.metadata
    for snapshot in ancestors(metadata, after):
        if snapshot.snapshot_id == before:
            return list(changed_files(mirror.tombstones, before, after).added)
        if snapshot.summary is None or snapshot.summary.operation not in _KEEPING:
            return None
    return None


def unreferenced(
    files: Mapping[str, int], retained: Mapping[str, Collection[str]], written_before_ms: int
) -> list[str]:
    """Return files that are neither a retained root nor named by one, sorted.

    A shard is written before the root that names it, and a root before the commit that names that:
    so what is younger than any running merge is left alone.

    Args:
        files: what lies in the index's location, each with its time of modification in ms.
        retained: paths of the roots that retained snapshots or the table's properties name, each
            with those of its shards.
        written_before_ms: files written at this time or later stay.
    """
    needed = set(retained)
    needed.update(chain(*retained.values()))
    return sorted(
        path
        for path, modified_ms in files.items()
        if path not in needed and modified_ms < written_before_ms
    )


def unreferenced_files(
    mirror: Mirror, grace_seconds: float = GRACE_SECONDS, expiring: Collection[int] = ()
) -> dict[str, int]:
    """Return files of a mirror's index that no retained root names, with their times in ms.

    While a root that is named cannot be read, there are none.

    Args:
        expiring: snapshots that are to expire; their roots count as not retained.
    """
    io = mirror.table.io
    try:
        files = list_files(io, mirror.index_location)
    except (UnsupportedError, OSError) as error:
        logger.info("%s: nothing of its index is removed: %s", mirror.name, error)
        return {}
    named = [
        property_of(mirror),
        *(
            file.statistics_path
            for file in mirror.table.metadata.statistics
            if file.snapshot_id not in expiring
        ),
    ]
    # One small file for each retained snapshot that has an index; most are known already.
    roots = sorted({path for path in named if path in files})
    try:
        retained = dict(zip(roots, in_parallel(partial(read_shard_paths, io), roots), strict=True))
    except (CorruptionError, StorageError) as error:
        logger.warning("%s: nothing of its index is removed: %s", mirror.name, error)
        return {}
    doomed = unreferenced(files, retained, int((time.time() - grace_seconds) * 1000))
    return {path: files[path] for path in doomed}


def remove_unreferenced(
    mirror: Mirror,
    grace_seconds: float = GRACE_SECONDS,
    planned: Collection[str] | None = None,
) -> int:
    """Delete files of a mirror's index that no retained root names; return how many. Idempotent.

    Args:
        planned: the only files that may go; None: all.
    """
    paths = unreferenced_files(mirror, grace_seconds)
    doomed = [path for path in paths if planned is None or path in planned]
    if doomed:
        what = "%s: deleting %d files of its index that no root names, %s first"
        logger.info(what, mirror.name, len(doomed), doomed[0])
    for path in doomed:
        logger.debug("%s: deleting %s", mirror.name, path)
    return delete_paths(mirror.table.io, mirror.name, doomed)


# When files of each index were last looked for, by location. At most one for each mirror.
_looked_at: dict[str, float] = {}


def remove_unreferenced_at_times(mirror: Mirror) -> int:
    """Do as `remove_unreferenced` if this process has not done so for a while; return how many.

    It lists the index, and nothing goes that was written in the last hour anyway.
    """
    now, location = time.monotonic(), mirror.index_location
    if now - _looked_at.get(location, -GRACE_SECONDS) < _LISTING_SECONDS:
        return 0
    _looked_at[location] = now
    return remove_unreferenced(mirror)
