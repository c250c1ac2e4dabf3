"""What an index needs of a mirror: its snapshot, columns and tombstones.

The names here are those that the merge writes into the mirror's properties and summaries.
"""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from neve.errors import NotFoundError, UsageError
from neve.index.columns import IndexedColumns
from neve.index.disk_cache import cache_properties
from neve.index.root import Root, index_location
from neve.index.shuffle import Source
from neve.lake.ancestry import ancestors
from neve.lake.catalog import load_table
from neve.lake.create import load_if_exists
from neve.lake.horizons import KEYS as KEYS
from neve.lake.horizons import NO_SNAPSHOT as NO_SNAPSHOT
from neve.lake.horizons import TOMBSTONES as TOMBSTONES
from neve.lake.identifier import name_of
from neve.lake.live_files import LiveFile, live_files

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from neve.lake import Lake
    from neve.lake.identifier import Identifier

SEQUENCE = "neve.merge.sequence"


@dataclass(frozen=True)
class Mirror:
    """A mirror at one moment; everything is pinned to snapshots."""

    identifier: Identifier
    table: Table
    main: Snapshot
    tombstones: Table | None
    tombstones_id: int | None
    keys: tuple[str, ...]
    sequence: tuple[str, ...]
    retention_seconds: float | None = None
    """How long a delete is remembered; None: for ever."""

    @property
    def name(self) -> str:
        return name_of(self.identifier)

    @property
    def main_id(self) -> int:
        return self.main.snapshot_id

    @cached_property
    def columns(self) -> IndexedColumns:
        """Raises UnsupportedError: they cannot be indexed."""
        return IndexedColumns.of(self.table.schema(), self.keys, self.sequence)

    def source_of(self, root: Root) -> Source:
        """Return where the entries of a root come from.

        Raises:
            UnsupportedError: its columns cannot be indexed.
        """
        columns = tombstone_columns = replace(self.columns, seed=root.seed)
        if self.tombstones is not None:
            schema = self.tombstones.schema()
            tombstone_columns = IndexedColumns.of(schema, self.keys, self.sequence)
            tombstone_columns = replace(tombstone_columns, seed=root.seed)
        properties = dict(self.table.io.properties)
        return Source(
            columns,
            tombstone_columns,
            properties,
            self.index_location,
            forget_before=forget_before(self.retention_seconds, time.time()),
        )

    @property
    def index_location(self) -> str:
        return index_location(self.table.location(), str(self.table.metadata.table_uuid))

    @cached_property
    def ancestors(self) -> list[int]:
        """The snapshots `main` descends from, itself first, as far as they are not expired."""
        return [each.snapshot_id for each in ancestors(self.table.metadata, self.main_id)]

    def files(self) -> list[LiveFile]:
        """Return the data files of `main`, by path. Raises UnsupportedError."""
        return _files(self.table, self.main_id)

    def tombstone_files(self) -> list[LiveFile]:
        """Return the data files of the tombstones that `main` names. Raises UnsupportedError."""
        if self.tombstones is None or self.tombstones_id is None:
            return []
        return _files(self.tombstones, self.tombstones_id)

    def pinned(self, root: Root) -> Root:
        """Return the root with this moment's snapshots."""
        return replace(root, snapshot_id=self.main_id, tombstones_snapshot_id=self.tombstones_id)

    def at(self, root: Root) -> Mirror:
        """Return the mirror as it was when a root was made. Raises NotFoundError: expired."""
        main = self.table.metadata.snapshot_by_id(root.snapshot_id)
        if main is None:
            raise NotFoundError(f"{self.name} has no snapshot {root.snapshot_id} any more")
        return replace(self, main=main, tombstones_id=root.tombstones_snapshot_id)

    def empty_root(self) -> Root:
        """Return a root without entries."""
        columns = self.columns
        return Root(
            table_uuid=str(self.table.metadata.table_uuid),
            snapshot_id=self.main_id,
            key_columns=columns.key_columns,
            sequence_columns=columns.sequence_names,
            sequence_type=columns.sequence_type,
            has_second_hash=columns.has_second_hash,
            bits=0,
            # Nobody who sends keys can know it, and so make some that collide.
            seed=secrets.randbits(63) if columns.has_second_hash else 0,
            tombstones_snapshot_id=self.tombstones_id,
            retention_seconds=self.retention_seconds,
        )


def forget_before(retention_seconds: float | None, now_seconds: float) -> float | None:
    """Return the time in seconds before which tombstones are forgotten; None: they never are."""
    return None if retention_seconds is None else now_seconds - retention_seconds


def observe(lake: Lake, identifier: Identifier, retention_seconds: float | None = None) -> Mirror:
    """Load a mirror as it is now.

    Args:
        retention_seconds: how long deletes are remembered; None: as the configuration says.

    Raises:
        NotFoundError: there is no such table.
        UsageError: it is no mirror, or has no rows yet.
    """
    profile, catalog = lake.profile, lake.catalog()
    table = load_table(profile, catalog, identifier)
    side = (*identifier[:-1], f"{identifier[-1]}_tombstones")
    tombstones = load_if_exists(profile, catalog, side)
    return mirror_of(lake, identifier, table, tombstones, retention_seconds)


def mirror_of(
    lake: Lake,
    identifier: Identifier,
    table: Table,
    tombstones: Table | None,
    retention_seconds: float | None = None,
) -> Mirror:
    """Return a mirror of tables that were loaded already. Raises UsageError as `observe`."""
    properties = table.metadata.properties
    if KEYS not in properties or SEQUENCE not in properties:
        raise UsageError(
            f"{'.'.join(identifier)} is not a mirror, so it has no index",
            hint="mirrors are made by neve merge; see merge.tables",
        )
    # For the tasks, which get these properties only.
    table.io.properties.update(cache_properties(lake.settings.merge))
    main = table.metadata.snapshot_by_name(MAIN_BRANCH)
    if main is None:
        raise UsageError(f"{'.'.join(identifier)} has no snapshot, so there is nothing to index")
    return Mirror(
        identifier,
        table,
        main,
        tombstones,
        _tombstones_id(table, main, tombstones),
        tuple(json.loads(properties[KEYS])),
        tuple(json.loads(properties[SEQUENCE])),
        retention_seconds or _configured_retention(lake, identifier),
    )


def _configured_retention(lake: Lake, identifier: Identifier) -> float | None:
    for table in lake.settings.merge.tables:
        if (*lake.profile.namespace(table.namespace), table.mirror_table) == identifier:
            return table.tombstone_retention
    return None


def _tombstones_id(table: Table, main: Snapshot, tombstones: Table | None) -> int | None:
    """Return which tombstones belong to `main`: those that the newest merge named.

    Where they are expired, all of them count, as they do for the merge itself.
    """
    if tombstones is None:
        return None
    for snapshot in ancestors(table.metadata, main.snapshot_id):
        named = snapshot.summary.get(TOMBSTONES) if snapshot.summary else None
        if named == NO_SNAPSHOT:
            return None
        if named and tombstones.metadata.snapshot_by_id(int(named)):
            return int(named)
        if named:
            break
    return tombstones.metadata.current_snapshot_id


def _files(table: Table, snapshot_id: int) -> list[LiveFile]:
    return sorted(live_files(table, snapshot_id).values(), key=lambda file: file.path)
