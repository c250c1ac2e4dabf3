"""Files below the tables' locations that no version of a table names, and how old files look."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from pyiceberg.table.snapshots import ancestors_of

from neve.errors import CorruptionError
from neve.index.root import index_location, read_root
from neve.lake.horizons import ROOT_PROPERTY

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    PathOf = Callable[[str], Path]

DAY_SECONDS = 86_400
_ENDINGS = (".parquet", ".avro", ".puffin", ".json")


def local_path(location: str) -> Path:
    """Return where a file of an embedded lake is."""
    return Path(unquote(urlsplit(location).path))


def tables_of(catalog: Catalog) -> list[Table]:
    """Load all tables of a catalog."""
    return [
        catalog.load_table(identifier)
        for namespace in catalog.list_namespaces()
        for identifier in catalog.list_tables(namespace)
    ]


def unreferenced_files(
    catalog: Catalog, path_of: PathOf = local_path, tables: Iterable[Table] | None = None
) -> set[Path]:
    """Return the files of tables that no snapshot, no statistics, no log and no index name.

    Args:
        tables: as they were just loaded; None: all of the catalog.
    """
    stored: set[Path] = set()
    needed: set[Path] = set()
    for table in tables_of(catalog) if tables is None else tables:
        for location in _locations(table):
            stored |= {path for path in path_of(location).rglob("*") if path.is_file()}
        needed |= set(map(path_of, chain(_files_of(table), _index_files(table))))
    return {path for path in stored - needed if path.suffix in _ENDINGS}


def committed_files(table: Table, path_of: PathOf = local_path) -> set[Path]:
    """Return the files that `main` and its index name: none that is only staged."""
    main = ancestors_of(table.current_snapshot(), table.metadata)
    return set(map(path_of, chain(_files_of(table, main), _index_files(table))))


def age_files(catalog: Catalog, path_of: PathOf = local_path) -> None:
    """Let all files of all tables look two days old."""
    for table in tables_of(catalog):
        age(chain(*(path_of(each).rglob("*") for each in _locations(table))))


def age(paths: Iterable[Path]) -> None:
    """Let files look two days old, those of them that are still there."""
    then = time.time() - 2 * DAY_SECONDS
    for path in paths:
        with suppress(FileNotFoundError):
            os.utime(path, (then, then))


def plant(table: Table, path_of: PathOf = local_path) -> set[Path]:
    """Leave a file of each kind behind that nothing names."""
    location, index = map(path_of, _locations(table))
    planted = {location / "data" / f"left-{uuid4()}.parquet"}
    planted |= {
        location / "metadata" / f"left-{uuid4()}{end}" for end in (".avro", ".metadata.json")
    }
    if index.is_dir():
        planted.add(index / f"shard-{uuid4()}.puffin")
    for path in planted:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"left")
    return planted


def _locations(table: Table) -> tuple[str, str]:
    """Return where a table lies, and where the index of a mirror does."""
    return table.location(), index_location(table.location(), str(table.metadata.table_uuid))


def _index_files(table: Table) -> Iterator[str]:
    """Yield the roots of a mirror's index that are named, and the shards that they name."""
    if ROOT_PROPERTY not in table.properties:
        return
    named = {json.loads(table.properties[ROOT_PROPERTY])["path"]}
    named |= {each.statistics_path for each in table.metadata.statistics}
    for path in named:
        if path.startswith(_locations(table)[1]):
            yield path
            with suppress(CorruptionError):  # the property may outlive a root
                yield from (shard.path for shard in read_root(table.io, path).shards)


def _files_of(table: Table, snapshots: Iterable[Snapshot] | None = None) -> Iterator[str]:
    yield table.metadata_location
    for entry in table.metadata.metadata_log:
        yield entry.metadata_file
    for statistics in table.metadata.statistics:
        yield statistics.statistics_path
    read: set[str] = set()
    for snapshot in table.snapshots() if snapshots is None else snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in read:
                read.add(manifest.manifest_path)
                yield manifest.manifest_path
                for entry in manifest.fetch_manifest_entry(table.io):
                    yield entry.data_file.file_path
