"""A table that is followed, and what others do to it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

import neve
from neve.api import OpenLake
from tests.support.lakes import sqlite_settings

ROWS = pa.table({"id": pa.array([1], pa.int64())})
TABLE = "shop.orders"


@contextmanager
def followed_lake(directory: Path) -> Iterator[OpenLake]:
    """Open an embedded lake with that table, which is empty."""
    with neve.open(sqlite_settings(directory)) as lake:
        lake.catalog().create_namespace("shop")
        lake.catalog().create_table(TABLE, ROWS.schema)
        yield lake


def append(lake, times=1, branch="main"):
    table = lake.catalog().load_table(TABLE)
    for _ in range(times):
        table.append(ROWS, branch=branch)
    return table.refs()[branch].snapshot_id


def expire(lake, snapshot_id):
    """Remove a snapshot as Java does: PyIceberg takes the parent from those after it, too."""
    metadata = lake.reader().read(("shop", "orders"))
    snapshots = [snap for number, snap in metadata.snapshots.items() if number != snapshot_id]
    replace_metadata(metadata, {**metadata.document, "snapshots": snapshots})


def replace_metadata(metadata, document):
    path = Path(metadata.metadata_location.removeprefix("file://"))
    path.write_text(json.dumps(document))
    return path
