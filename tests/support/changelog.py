"""Debezium's events as a CDC tool appends them to a changelog table.

A row has the columns of the source's table, then `op` (Debezium's r, c, u, d, t) and two columns to
order by:

- `lsn`, a bigint: the log position that Debezium gives. Rows of one COPY, and the two halves of a
  key change, share it; they never share a key, so that is no harm. A snapshot read has the position
  of the snapshot, and a transaction that was open at that moment may have lower ones.
- `sequence`, a text: `{end of the commit before:016x}/{position:016x}`, all zeros for a snapshot
  read. That is the order of the commits, with the snapshot before all of them.

A delete has what Debezium sends of the row before it: the key, and beside it the old values only
under REPLICA IDENTITY FULL; otherwise NULL, or, in columns that are NOT NULL, an invented zero or
empty text. A truncate has nothing but `op` and its order. A value that was not sent stays
Debezium's placeholder. A tombstone, which only tells a compacted topic to forget a key, is left
out; tools that pass it on make it a row with a key and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests.support.debezium import ChangeEvent

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_OWN_COLUMNS = [
    pa.field("op", pa.string()),
    pa.field("lsn", pa.int64()),
    pa.field("sequence", pa.string()),
]


def changelog_rows(
    events: Iterable[ChangeEvent], table: str, *, keep_tombstones: bool = False
) -> list[dict[str, Any]]:
    """Turn the events of one table, given as `schema.table`, into rows with JSON's values."""
    of_table = [event for event in events if event.topic.endswith(f".{table}")]
    return [_row(event) for event in of_table if keep_tombstones or not event.is_tombstone]


def append_changelog(
    catalog: Catalog,
    identifier: str,
    rows: Sequence[dict[str, Any]],
    columns: pa.Schema,
    *,
    batches: int = 3,
) -> Table:
    """Append rows in so many commits, to a table that is made when it is missing.

    Args:
        columns: those of the source's table.
    """
    schema = pa.schema([*columns, *_OWN_COLUMNS])
    table = catalog.create_table_if_not_exists(
        identifier, schema, properties={"format-version": "2"}
    )
    size = -(-len(rows) // batches)
    for start in range(0, len(rows), size):
        table.append(_arrow(rows[start : start + size], schema))
    return table


def _row(event: ChangeEvent) -> dict[str, Any]:
    if event.value is None:
        return {**(event.key or {}), "op": None, "lsn": None, "sequence": None}
    source = event.value["source"]
    values = event.value["after"] or event.value["before"] or {}
    return {
        **values,
        "op": event.value["op"],
        "lsn": source["lsn"],
        "sequence": _sequence(source),
    }


def _sequence(source: dict[str, Any]) -> str:
    commit, position = (None, 0)
    if source["snapshot"] == "false":
        commit, position = json.loads(source["sequence"])
    return f"{int(commit or 0):016x}/{int(position):016x}"


def _arrow(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    columns = [_typed([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.table(columns, schema=schema)


def _typed(values: list[Any], kind: pa.DataType) -> pa.Array:
    # Debezium is told to write these as text, which is exact.
    if pa.types.is_decimal(kind) or pa.types.is_temporal(kind):
        return pa.array(values, pa.string()).cast(kind)
    return pa.array(values, kind)
