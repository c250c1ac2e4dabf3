"""Which root counts: the one that the table names, in a property and as a statistics file.

`compute_table_stats` replaces a snapshot's statistics file, a rollback leaves the property behind:
whichever still names a root of an ancestor of `main` is taken.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve.errors import CorruptionError
from neve.index.indexed_table import Mirror
from neve.index.root import Root, new_path, read_root, write_root
from neve.lake.commit_loop import CommitCounters, RetryPolicy, commit_until_known
from neve.lake.horizons import ROOT_PROPERTY as ROOT_PROPERTY
from neve.lake.row_delta import StatisticsFile, set_statistics, source_of

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from neve.lake import Lake

logger = logging.getLogger(__name__)

# Of naming a root: an index that is not named costs time only, and is built again.
_ATTEMPTS = 3


@dataclass(frozen=True)
class Registration:
    """A root that is written, and what a commit sets to name it."""

    statistics: StatisticsFile
    properties: dict[str, str]


def find_root(mirror: Mirror) -> tuple[Root | None, str]:
    """Return the newest root of an ancestor of `main` that can be read; or None, and why.

    It may be behind `main`.
    """
    why = "it was never built"
    for path in _named_roots(mirror):
        try:
            root = read_root(mirror.table.io, path)
        except CorruptionError as error:
            why = error.message
            continue
        why = _unfit(mirror, root)
        if not why:
            return root, ""
    return None, why


def _named_roots(mirror: Mirror) -> list[str]:
    """Return the paths that may be roots: the property's, then `main`'s and its ancestors'."""
    ages = {snapshot_id: age for age, snapshot_id in enumerate(mirror.ancestors)}
    statistics = [file for file in mirror.table.metadata.statistics if file.snapshot_id in ages]
    newest_first = sorted(statistics, key=lambda file: ages[file.snapshot_id])
    named = [property_of(mirror) or "", *(file.statistics_path for file in newest_first)]
    # Others' statistics have other names; asking the store for each would take long.
    return [path for path in dict.fromkeys(named) if path.startswith(mirror.index_location)]


def property_of(mirror: Mirror) -> str | None:
    """Return the path that the table's property names."""
    return _path_in(mirror.table.metadata.properties)


def _path_in(properties: Mapping[str, str]) -> str | None:
    try:
        return str(json.loads(properties[ROOT_PROPERTY])["path"])
    except (KeyError, ValueError, TypeError):
        return None


def _unfit(mirror: Mirror, root: Root) -> str:
    """Say why a root cannot be used; nothing if it can."""
    columns = mirror.columns
    if root.table_uuid != str(mirror.table.metadata.table_uuid):
        return "it is of another table"
    if [key.field_id for key in root.key_columns] != [key.field_id for key in columns.keys]:
        return "it has other key columns"
    kind = (root.sequence_columns, root.sequence_type, root.has_second_hash)
    if kind != (columns.sequence_names, columns.sequence_type, columns.has_second_hash):
        return "its keys or sequences are of other types"
    if (root.retention_seconds or math.inf) < (mirror.retention_seconds or math.inf):
        return "deletes are remembered for a longer time now"
    if root.snapshot_id not in mirror.ancestors:
        return f"snapshot {root.snapshot_id}, which it is of, is expired or rolled back"
    return ""


def store_root(mirror: Mirror, root: Root, io: FileIO | None = None) -> Registration:
    """Write a root as a file. Until a commit sets what is returned, it is an orphan.

    Args:
        io: what it is written with, if not with the table's own.
    """
    path, snapshot_id = new_path(mirror.index_location, "root"), root.snapshot_id
    sizes = write_root(io or mirror.table.io, path, root)
    named = {
        "path": path,
        "snapshot_id": snapshot_id,
        "tombstones_snapshot_id": root.tombstones_snapshot_id,
    }
    statistics = StatisticsFile(snapshot_id, path, *sizes)
    return Registration(statistics, {ROOT_PROPERTY: json.dumps(named)})


def register(lake: Lake, mirror: Mirror, root: Root) -> Registration:
    """Write a root and have the table name it.

    Atomic. Of two at once the later wins; if its root is behind, that is noticed.

    Raises:
        ConflictError: the table changed at the moment of each attempt; nothing was applied.
        UnknownOutcomeError: the answer was lost, and the table does not name the root, or not yet.
    """
    stored = store_root(mirror, root)
    source = source_of(lake, mirror.table)
    is_first = True

    def refresh() -> None:
        # `main` does not move, so nothing has to be decided again.
        nonlocal is_first
        if not is_first:
            source.refresh()
        is_first = False

    def attempt() -> Registration:
        set_statistics(source, stored.statistics, stored.properties)
        return stored

    def find_applied() -> Registration | None:
        named = _path_in(source.metadata.properties)
        return stored if named == stored.statistics.path else None

    return commit_until_known(
        refresh,
        attempt,
        find_applied,
        policy=RetryPolicy(attempts=_ATTEMPTS),
        counters=CommitCounters(),
    )
