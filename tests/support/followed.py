"""A table that is followed, and what others do to it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

ROWS = pa.table({"id": pa.array([1], pa.int64())})
TABLE = "shop.orders"


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
