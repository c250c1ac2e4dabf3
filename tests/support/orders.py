"""Tables in PostgreSQL, and a history with everything in it that a changelog can say."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

ORDERS = "public.orders"
ORDER_COLUMNS = pa.schema(
    {
        "id": pa.int32(),
        "status": pa.string(),
        "amount": pa.decimal128(10, 2),
        "placed_at": pa.timestamp("us", tz="UTC"),
        "note": pa.string(),
    }
)

# One row each, whose key changes while its note, which is not sent again, stays.
MOVED = {"DEFAULT": "public.moved_default", "FULL": "public.moved_full"}
MOVED_COLUMNS = pa.schema({"id": pa.int32(), "note": pa.string()})

TABLES = (ORDERS, *MOVED.values())

_CREATE_ORDERS = """
    CREATE TABLE public.orders (
        id integer PRIMARY KEY,
        status text NOT NULL,
        amount numeric(10, 2),
        placed_at timestamptz NOT NULL,
        note text
    )
"""

# Of nine kilobytes: kept beside the row, and not sent with an update that leaves it as it is.
_LONG = "repeat(md5({}::text), 300)"

_BEFORE = (
    f"""
    INSERT INTO orders
    SELECT n, 'new', n * 1.1, '2026-01-01T01:00:00.000001+01', {_LONG.format("n")}
    FROM generate_series(1, 6) n
    """,
    """
    INSERT INTO orders VALUES
        (7, 'new', -99999999.99, '1999-12-31T23:59:59.999999Z', NULL),
        (8, '', 0, '2026-01-01Z', 'Grüße 🐘'),
        (9, 'new', NULL, '2026-01-01Z', '')
    """,
)

_CHANGES = (
    f"INSERT INTO orders VALUES (10, 'new', 10, '2026-02-01Z', {_LONG.format(10)})",
    # The long note is not sent; it comes from the snapshot, from an insert, from an update.
    "UPDATE orders SET status = 'paid' WHERE id = 1",
    "UPDATE orders SET amount = NULL WHERE id = 1",
    "UPDATE orders SET status = 'paid' WHERE id = 10",
    f"UPDATE orders SET note = {_LONG.format(22)} WHERE id = 2",
    "UPDATE orders SET status = 'paid' WHERE id = 2",
    "UPDATE orders SET note = NULL WHERE id = 3",
    "UPDATE orders SET status = 'paid' WHERE id = 3",
    "DELETE FROM orders WHERE id = 4",
    "DELETE FROM orders WHERE id = 5",
    "INSERT INTO orders VALUES (5, 'again', 5.55, '2026-03-01Z', 'short')",
    # Keys change; the long note goes along because it changes, too.
    "UPDATE orders SET id = 70 WHERE id = 7",
    "UPDATE orders SET id = 60, note = note || '.' WHERE id = 6",
    # Two rows swap their keys.
    """
    BEGIN;
    UPDATE orders SET id = -1 WHERE id = 8;
    UPDATE orders SET id = 8 WHERE id = 9;
    UPDATE orders SET id = 9 WHERE id = -1;
    COMMIT
    """,
    """
    BEGIN;
    INSERT INTO orders VALUES (11, 'a', 1, '2026-04-01Z', 'x');
    UPDATE orders SET status = 'b' WHERE id = 11;
    DELETE FROM orders WHERE id = 11;
    INSERT INTO orders VALUES (11, 'c', 2, '2026-04-01Z', 'y');
    COMMIT
    """,
    "BEGIN; DELETE FROM orders; ROLLBACK",
    *(f"UPDATE {table} SET id = 2 WHERE id = 1" for table in MOVED.values()),
)

_COPIED = "20\tcopied\t1\t2026-05-01Z\t\\N\n21\tcopied\t2\t2026-05-01Z\tz\n"

_TRUNCATE = (
    f"""
    BEGIN;
    INSERT INTO orders VALUES (12, 'gone', 1, '2026-06-01Z', 'x');
    TRUNCATE orders;
    INSERT INTO orders VALUES (1, 'after', 1, '2026-06-01Z', {_LONG.format(111)});
    COMMIT
    """,
    "INSERT INTO orders VALUES (2, 'after', 2, '2026-06-01Z', 'short')",
    "UPDATE orders SET status = 'paid' WHERE id = 1",
)


def create_tables(cursor: Any) -> None:
    """Make the tables and fill them with what a snapshot then reads."""
    cursor.execute(_CREATE_ORDERS)
    cursor.execute("ALTER TABLE orders ALTER COLUMN note SET STORAGE EXTERNAL")
    for identity, table in MOVED.items():
        cursor.execute(f"CREATE TABLE {table} (id integer PRIMARY KEY, note text)")
        cursor.execute(f"ALTER TABLE {table} ALTER COLUMN note SET STORAGE EXTERNAL")
        cursor.execute(f"ALTER TABLE {table} REPLICA IDENTITY {identity}")
        cursor.execute(f"INSERT INTO {table} VALUES (1, {_LONG.format(1)})")
    _execute(cursor, _BEFORE)


def change_tables(cursor: Any) -> None:
    """Insert, update, delete, change keys; every statement a transaction unless it says BEGIN."""
    _execute(cursor, _CHANGES)
    cursor.copy_expert("COPY orders FROM STDIN", io.StringIO(_COPIED))


def truncate_orders(cursor: Any) -> None:
    """Truncate in the middle of a transaction, then insert, keys from before among them."""
    _execute(cursor, _TRUNCATE)


def drop_tables(cursor: Any) -> None:
    cursor.execute(f"DROP TABLE IF EXISTS {', '.join(TABLES)}")


def rows_by_key(cursor: Any, table: str) -> dict[tuple[Any], dict[str, Any]]:
    """Read a table as the database shows it."""
    cursor.execute(f"SELECT * FROM {table}")
    names = [column.name for column in cursor.description]
    rows = [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]
    return {(row["id"],): row for row in rows}


def _execute(cursor: Any, statements: Sequence[str]) -> None:
    for statement in statements:
        cursor.execute(statement)
