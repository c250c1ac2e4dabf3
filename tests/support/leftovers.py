"""Files below the tables' locations that no version of a table names."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from neve.errors import CorruptionError
from neve.index.root import index_location, read_root
from neve.lake.horizons import ROOT_PROPERTY

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    PathOf = Callable[[str], Path]

DAY_SECONDS = 86_400
# Metadata documents are removed by the commits that come after them.
_ENDINGS = (".parquet", ".avro", ".puffin")


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


def unreferenced_files(catalog: Catalog, path_of: PathOf = local_path) -> set[Path]:
    """Return the files of all tables that no snapshot, no statistics and no index name."""
    stored: set[Path] = set()
    needed: set[Path] = set()
    for table in tables_of(catalog):
        for location in _locations(table):
            stored |= {path for path in path_of(location).rglob("*") if path.is_file()}
        needed |= set(map(path_of, chain(_files_of(table), _index_files(table))))
    return {path for path in stored - needed if path.suffix in _ENDINGS}


def age_files(catalog: Catalog, path_of: PathOf = local_path) -> None:
    """Let all files of all tables look two days old."""
    then = time.time() - 2 * DAY_SECONDS
    for table in tables_of(catalog):
        for path in chain(*(path_of(each).rglob("*") for each in _locations(table))):
            os.utime(path, (then, then))


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


def _files_of(table: Table) -> Iterator[str]:
    yield table.metadata_location
    for statistics in table.metadata.statistics:
        yield statistics.statistics_path
    for snapshot in table.snapshots():
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(table.io):
                yield entry.data_file.file_path
