"""Digests of all rows of a snapshot, by Spark: equal rows in any order have equal digests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve.lake import jvm
from neve.lake.identifier import quote_identifier

if TYPE_CHECKING:
    from neve.lake.lake import Lake
    from neve.lake.scratch_catalog import ScratchTable

# Rows of one file have equal maps in equal order, which is all that is compared.
_HASH_MAPS = "spark.sql.legacy.allowHashOnMapType"
_LINEAGE = ("_row_id", "_last_updated_sequence_number")


@dataclass(frozen=True)
class RowDigest:
    """How many rows there are, and two sums of their hashes."""

    rows: int
    first: int
    second: int


@contextmanager
def session_with(lake: Lake, *tables: ScratchTable) -> Iterator[Lake]:
    """Return a lake whose Spark session knows these tables, and whose settings nobody else sees."""
    session = lake.spark.newSession()
    settings = {_HASH_MAPS: "true"}
    for table in tables:
        settings |= table.profile.spark_conf()
    for key, value in settings.items():
        session.conf.set(key, value)
    try:
        yield lake.in_session(session)
    finally:
        jvm.close_catalogs(session)


def row_digest(
    lake: Lake, table: ScratchTable, snapshot_id: int, *, with_lineage: bool = False
) -> RowDigest:
    """Digest all rows of a snapshot, deletes applied.

    Args:
        with_lineage: the row ids of format version 3 count, too.
    """
    version = f"{table.quoted} VERSION AS OF {int(snapshot_id)}"
    schema = lake.sql(f"SELECT * FROM {version} LIMIT 0").schema  # noqa: S608 - quoted
    columns = [
        # Variants cannot be hashed.
        f"to_json(named_struct('v', {quoted}))" if "variant" in kind else quoted
        for quoted, kind in (
            (quote_identifier((field.name,)), field.dataType.simpleString())
            for field in schema.fields
        )
    ]
    values = ", ".join([*columns, *(_LINEAGE if with_lineage else ())])
    statement = f"""
        SELECT count(*),
            coalesce(sum(CAST(xxhash64({values}) AS DECIMAL(38, 0))), 0),
            coalesce(sum(CAST(xxhash64(1, {values}) AS DECIMAL(38, 0))), 0)
        FROM {version}"""  # noqa: S608 - quoted
    (row,) = lake.query(statement).to_pylist()
    rows, first, second = row.values()
    return RowDigest(int(rows), int(first), int(second))
