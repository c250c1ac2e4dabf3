"""Files below the tables' locations that no version of a table names."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

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
    """Return the files of all tables that no snapshot and no statistics name."""
    stored: set[Path] = set()
    needed: set[Path] = set()
    for table in tables_of(catalog):
        stored |= {path for path in path_of(table.location()).rglob("*") if path.is_file()}
        needed |= set(map(path_of, _files_of(table)))
    return {path for path in stored - needed if path.suffix in _ENDINGS}


def age_files(catalog: Catalog, path_of: PathOf = local_path) -> None:
    """Let all files of all tables look two days old."""
    then = time.time() - 2 * DAY_SECONDS
    for table in tables_of(catalog):
        for path in path_of(table.location()).rglob("*"):
            os.utime(path, (then, then))


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
