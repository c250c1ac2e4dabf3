"""What every catalog profile must do, on real servers."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from threading import Barrier

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException

from neve.errors import NotFoundError
from tests.support.readers import by_all, read_with_all, read_with_spark

SCHEMA = pa.schema({"id": pa.int64(), "name": pa.string()})


def events(*ids):
    return pa.table({"id": ids, "name": [f"event {number}" for number in ids]}, schema=SCHEMA)


def rows(*ids):
    return events(*ids).to_pylist()


@pytest.fixture
def table(lake, namespace):
    """An empty table that both engines can write to."""
    name = f"{namespace}.events"
    lake.catalog().create_table(name, SCHEMA)
    return name


def test_namespaces_and_tables_come_and_go(lake, namespace):
    catalog = lake.catalog()
    other = f"{namespace}_other"
    lake.sql(f"CREATE NAMESPACE {other}")
    assert {(namespace,), (other,)} <= set(catalog.list_namespaces())

    lake.sql(f"CREATE TABLE {other}.made_by_spark (id BIGINT) USING iceberg")
    catalog.create_table(f"{other}.made_by_pyiceberg", SCHEMA)
    shown = lake.query(f"SHOW TABLES IN {other}")["tableName"].to_pylist()
    assert sorted(shown) == ["made_by_pyiceberg", "made_by_spark"]
    assert [summary.table for summary in lake.tables(other)] == [
        f"{other}.made_by_pyiceberg",
        f"{other}.made_by_spark",
    ]

    # PyIceberg does not know the type.
    lake.sql(
        f"CREATE TABLE {other}.variants (v VARIANT) USING iceberg "
        "TBLPROPERTIES ('format-version' = '3')"
    )
    assert [summary.rows for summary in lake.tables(other)] == [0, 0, 0]
    (column,) = lake.table(f"{other}.variants").columns
    assert (column.name, column.type) == ("v", "variant")
    lake.sql(f"DROP TABLE {other}.variants PURGE")

    lake.sql(f"ALTER TABLE {other}.made_by_spark RENAME TO {other}.renamed")
    assert catalog.table_exists(f"{other}.renamed")
    lake.sql(f"DROP TABLE {other}.renamed PURGE")
    catalog.purge_table(f"{other}.made_by_pyiceberg")
    assert lake.tables(other) == []
    assert lake.query(f"SHOW TABLES IN {other}").num_rows == 0
    with pytest.raises(NotFoundError, match="renamed does not exist"):
        lake.query(f"SELECT * FROM {other}.renamed")

    lake.sql(f"DROP NAMESPACE {other}")
    assert (other,) not in catalog.list_namespaces()
    with pytest.raises(NotFoundError, match=f"{other} does not exist"):
        lake.tables(other)


def test_every_engine_reads_what_spark_wrote(lake, namespace):
    name = f"{namespace}.visits"
    lake.sql(
        f"CREATE TABLE {name} (id BIGINT NOT NULL COMMENT 'the key', at TIMESTAMP, "
        "place STRUCT<city: STRING, height: DOUBLE>, tags ARRAY<STRING>, "
        "attributes MAP<STRING, BIGINT>, amount DECIMAL(9, 2)) USING iceberg "
        "PARTITIONED BY (days(at), bucket(4, id))"
    )
    lake.sql(
        f"INSERT INTO {name} VALUES "
        "(1, TIMESTAMP '2026-01-01 23:59:59.999999', named_struct('city', 'Zermatt', 'height', "
        "1608.5), array('ski', 'ibex'), map('beds', 13000L), 12.50),"
        "(2, TIMESTAMP '2026-01-02 00:00:00', named_struct('city', NULL, 'height', NULL), "
        "array(), map(), NULL), (3, NULL, NULL, NULL, NULL, NULL)"
    )
    amounts = pa.array(["12.50", None, None]).cast(pa.decimal128(9, 2)).to_pylist()
    nothing = dict.fromkeys(("at", "place", "tags", "attributes", "amount"))
    expected = [
        {
            "id": 1,
            "at": datetime(2026, 1, 1, 23, 59, 59, 999999, timezone.utc),
            "place": {"city": "Zermatt", "height": 1608.5},
            "tags": ["ski", "ibex"],
            "attributes": {"beds": 13000},
            "amount": amounts[0],
        },
        {
            "id": 2,
            "at": datetime(2026, 1, 2, tzinfo=timezone.utc),
            "place": {"city": None, "height": None},
            "tags": [],
            "attributes": {},
            "amount": None,
        },
        {"id": 3, **nothing},
    ]
    assert read_with_all(lake, name) == by_all(expected)

    description = lake.table(name)
    assert description.partition_by == ("day(at)", "bucket[4](id)")
    assert (description.rows, description.files, description.snapshots) == (3, 3, 1)
    assert (description.columns[0].required, description.columns[0].comment) == (True, "the key")


@pytest.mark.parametrize(
    "lake", ["sqlite", "postgres", "rest", "s3tables", "oauth2"], indirect=True
)
def test_spark_sees_at_once_what_pyiceberg_appends(lake, table):
    written = lake.catalog().load_table(table)
    assert written.metadata.format_version == 2
    assert read_with_spark(lake, table) == []
    written.append(events(1, 2))
    assert read_with_spark(lake, table) == rows(1, 2)
    lake.sql(f"DELETE FROM {table} WHERE id = 1")
    lake.sql(f"INSERT INTO {table} VALUES (3, 'event 3')")
    written.refresh().append(events(4))
    assert read_with_all(lake, table) == by_all(rows(2, 3, 4))


def test_evolved_tables_are_read_as_they_are_now(lake, namespace):
    name = f"{namespace}.prices"
    lake.sql(f"CREATE TABLE {name} (id INT, cost FLOAT, gone STRING) USING iceberg")
    lake.sql(f"INSERT INTO {name} VALUES (1, 0.5, 'x')")
    for change in (
        "ALTER COLUMN id TYPE BIGINT",
        "ALTER COLUMN cost TYPE DOUBLE",
        "RENAME COLUMN cost TO price",
        "DROP COLUMN gone",
        "ADD COLUMN gone STRING FIRST",  # the old name again, yet another column
        "ADD PARTITION FIELD bucket(2, id)",
    ):
        lake.sql(f"ALTER TABLE {name} {change}")
    lake.sql(f"INSERT INTO {name} (id, price, gone) VALUES (5000000000, 1.25, 'y')")
    expected = [
        {"gone": None, "id": 1, "price": 0.5},
        {"gone": "y", "id": 5_000_000_000, "price": 1.25},
    ]
    assert read_with_all(lake, name) == by_all(expected)


def test_two_writers_at_once_both_land(lake, table):
    together = Barrier(2)
    commits = 3

    def write_with_spark():
        together.wait(60)
        for number in range(commits):
            lake.sql(f"INSERT INTO {table} VALUES ({number}, 'event {number}')")

    def write_with_pyiceberg():
        written = lake.catalog().load_table(table)
        together.wait(60)
        for number in range(commits):
            written.append(events(10 + number))

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(write_with_spark), pool.submit(write_with_pyiceberg)]:
            done.result()
    assert read_with_spark(lake, table) == rows(0, 1, 2, 10, 11, 12)
    assert lake.table(table).snapshots == 2 * commits


def test_a_stale_commit_is_refused_then_retried(lake, table):
    catalog = lake.catalog()
    with catalog.load_table(table).transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "0"})
    stale = catalog.load_table(table)
    lake.sql(f"INSERT INTO {table} VALUES (1, 'event 1')")
    with pytest.raises(CommitFailedException):
        stale.append(events(2))
    assert read_with_spark(lake, table) == rows(1)

    lake.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('commit.retry.num-retries')")
    stale = catalog.load_table(table)
    lake.sql(f"INSERT INTO {table} VALUES (3, 'event 3')")
    stale.append(events(4))
    assert read_with_spark(lake, table) == rows(1, 3, 4)


def test_tasks_are_sent_plain_text_and_nothing_of_the_catalog(lake, namespace):
    table = lake.catalog().create_table(f"{namespace}.t", pa.schema([("id", pa.int64())]))
    properties = pickle.loads(pickle.dumps(table.io.properties))
    assert {type(value) for value in properties.values()} == {str}


def test_a_namespace_whose_name_has_a_dot(lake, namespace):
    """A database cannot tell it from two levels; a REST server may."""
    if lake.settings.catalog.type == "s3tables":
        pytest.skip("S3 Tables has no such names")
    levels = (f"{namespace}.dotted",)
    lake.sql(f"CREATE NAMESPACE `{levels[0]}`")
    lake.sql(f"CREATE TABLE `{levels[0]}`.t USING iceberg AS SELECT 1 AS id")
    name = f"`{levels[0]}`.t"
    ((listed,),) = [[each.table] for each in lake.tables(f"`{levels[0]}`")]
    for spelled in (name, listed):
        assert lake.table(spelled).rows == 1
        (health,) = lake.health(spelled)
        assert (health.table, health.rows, health.error) == (listed, 1, None)
        assert read_with_spark(lake, spelled) == [{"id": 1}]
    assert [each.table for each in lake.health(f"`{levels[0]}`")] == [listed]
    lake.catalog().purge_table((*levels, "t"))
    lake.sql(f"DROP NAMESPACE `{levels[0]}`")
