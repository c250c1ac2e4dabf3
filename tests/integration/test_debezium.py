"""Debezium on PostgreSQL as the source of a changelog: what it sends, and what that amounts to."""

from __future__ import annotations

import signal
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass

import pytest

import neve
from neve.config.merging import MergeTableSettings
from neve.merge.merger import Merger
from neve.merge.spec import merge_spec
from tests.support.changelog import append_changelog, changelog_rows
from tests.support.debezium import UNAVAILABLE_VALUE, connect, running_debezium
from tests.support.lakes import sqlite_settings
from tests.support.orders import (
    MOVED,
    MOVED_COLUMNS,
    ORDER_COLUMNS,
    ORDERS,
    TABLES,
    change_tables,
    create_tables,
    drop_tables,
    rows_by_key,
    truncate_orders,
)
from tests.support.readers import read_with_all
from tests.support.replay import UNKNOWN_OPERATION, changelog_event, replay
from tests.support.wait import until


@dataclass(frozen=True)
class Moment:
    """All events sent so far, and what the source's tables hold."""

    events: list
    tables: dict


# One history for all: the tests without Spark run where its mirror is merged.
pytestmark = pytest.mark.usefixtures("embedded_lake")


@pytest.fixture(scope="module")
def history(postgres, tmp_path_factory):
    """The moment of the snapshot, the one after many changes, and the one after a truncate."""
    directory = tmp_path_factory.mktemp("debezium")
    moments = {}
    with closing(connect(postgres)) as connection, connection.cursor() as cursor:
        drop_tables(cursor)
        create_tables(cursor)
        with running_debezium(directory, postgres, TABLES) as debezium:

            def remember(name):
                tables = {table: rows_by_key(cursor, table) for table in TABLES}
                moments[name] = Moment(debezium.events_until_now(), tables)

            remember("snapshot")
            change_tables(cursor)
            remember("changes")
            truncate_orders(cursor)
            remember("truncate")
        assert debezium.process.wait() == 128 + signal.SIGTERM  # on request; 9 if it had to be made
        drop_tables(cursor)
    return moments


@pytest.fixture
def catalog(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        catalog = lake.catalog()
        catalog.create_namespace("cdc")
        yield catalog


def mirror_of(rows, sequence="sequence"):
    own = ("lsn", "sequence")
    events = [changelog_event(row, keys=["id"], sequence=sequence, leave_out=own) for row in rows]
    return replay(events, unchanged=UNAVAILABLE_VALUE)


def of_table(events, table):
    return [event for event in events if event.topic.endswith(f".{table}")]


def test_every_kind_of_event_is_sent(history):
    events = of_table(history["truncate"].events, ORDERS)
    # None counts the tombstones: one for each delete, those of key changes among them.
    assert Counter(event.op for event in events) == {
        "r": 9,
        "c": 14,
        "u": 9,
        "d": 8,
        None: 8,
        "t": 1,
    }
    truncate = next(event for event in events if event.op == "t")
    assert truncate.key is None
    assert truncate.value["before"] is truncate.value["after"] is None


def test_a_key_change_is_a_delete_a_tombstone_and_an_insert(history):
    events = of_table(history["changes"].events, ORDERS)
    arrival = next(n for n, event in enumerate(events) if event.key == {"id": 70})
    deleted, tombstone, created = events[arrival - 2 : arrival + 1]
    assert [deleted.key, tombstone.key] == [{"id": 7}, {"id": 7}]
    assert (deleted.op, tombstone.is_tombstone, created.op) == ("d", True, "c")
    assert deleted.value["source"]["lsn"] == created.value["source"]["lsn"]


def test_values_are_not_sent_again_and_invented_for_deletes(history):
    rows = changelog_rows(history["changes"].events, ORDERS)
    unsent = [row["id"] for row in rows if row.get("note") == UNAVAILABLE_VALUE]
    assert unsent == [1, 1, 10, 2]
    deleted = next(row for row in rows if row["op"] == "d")
    old = {name: deleted[name] for name in ORDER_COLUMNS.names}
    assert old == {
        "id": 4,
        "status": "",
        "amount": None,
        "placed_at": "1970-01-01T00:00:00Z",
        "note": None,
    }


@pytest.mark.parametrize("sequence", ["sequence", "lsn"])
@pytest.mark.parametrize("moment", ["snapshot", "changes", "truncate"])
def test_the_changelog_amounts_to_the_table(history, catalog, moment, sequence):
    rows = changelog_rows(history[moment].events, ORDERS)
    table = append_changelog(catalog, "cdc.orders", rows, ORDER_COLUMNS, batches=3)
    assert len(table.snapshots()) == 3
    assert table.format_version == 2
    mirror, rejected = mirror_of(table.scan().to_arrow().to_pylist(), sequence)
    assert mirror == history[moment].tables[ORDERS]
    assert rejected == []


def test_tombstones_passed_on_are_rejected_and_change_nothing(history, catalog):
    rows = changelog_rows(history["changes"].events, ORDERS, keep_tombstones=True)
    table = append_changelog(catalog, "cdc.orders", rows, ORDER_COLUMNS)
    mirror, rejected = mirror_of(table.scan().to_arrow().to_pylist())
    assert mirror == history["changes"].tables[ORDERS]
    assert [reason for _, reason in rejected] == [UNKNOWN_OPERATION] * 8


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_a_key_change_keeps_what_it_does_not_send_only_with_full_identity(
    history, catalog, identity
):
    """Under the default the new key's first event lacks the value, and no older one has it."""
    rows = changelog_rows(history["changes"].events, MOVED[identity])
    table = append_changelog(catalog, "cdc.moved", rows, MOVED_COLUMNS)
    mirror = mirror_of(table.scan().to_arrow().to_pylist()).mirror
    source = history["changes"].tables[MOVED[identity]]
    assert mirror == (source if identity == "FULL" else {(2,): {"id": 2, "note": None}})


@pytest.mark.parametrize("batch_size", [1_000_000, pytest.param(5, marks=pytest.mark.soak)])
def test_the_mirror_is_the_table_for_every_reader(history, embedded_lake, batch_size):
    """The changelog grows in several commits, is merged after each moment, and never waited for."""
    namespace = f"debezium_{uuid.uuid4().hex[:12]}"
    catalog = embedded_lake.catalog()
    catalog.create_namespace(namespace)
    settings = MergeTableSettings(
        namespace=namespace,
        changelog_table="orders_changes",
        mirror_table="orders",
        primary_keys="id",
        sequence_column="sequence",
        exclude_columns=("lsn",),
        unchanged_marker=UNAVAILABLE_VALUE,
    )
    merger = Merger(embedded_lake, merge_spec(settings, batch_size))
    merged, set_aside = 0, 0
    for name, moment in history.items():
        rows = changelog_rows(moment.events, ORDERS, keep_tombstones=True)
        changelog = f"{namespace}.orders_changes"
        append_changelog(catalog, changelog, rows[merged:], ORDER_COLUMNS, batches=2)
        report = merger.merge()
        assert report.rows_scanned == len(rows) - merged
        merged, set_aside = len(rows), set_aside + report.set_aside
        assert set_aside == sum(row["op"] is None for row in rows)
        for reader, found in read_with_all(embedded_lake, f"{namespace}.orders").items():
            mirror = {(row["id"],): row for row in found}
            assert len(mirror) == len(found), (name, reader)
            for row in found:
                del row["sequence"]
            assert mirror == moment.tables[ORDERS], (name, reader)


def begin(cursor):
    cursor.execute("BEGIN; SELECT pg_current_xact_id()::text")
    return cursor.fetchone()[0]


def is_waited_for(cursor, transaction):
    held_up = "SELECT 1 FROM pg_locks WHERE NOT granted AND transactionid = %s::xid"
    cursor.execute(held_up, [transaction])
    return cursor.fetchone() is not None


def test_a_transaction_open_at_the_snapshot_is_behind_it_in_sequence_only(postgres, tmp_path):
    """Its change is in the log before the snapshot's position, and is committed after."""
    with ExitStack() as stack:
        observer = stack.enter_context(closing(connect(postgres))).cursor()
        observer.execute("CREATE TABLE public.accounts (id integer PRIMARY KEY, name text)")
        stack.callback(observer.execute, "DROP TABLE public.accounts")
        observer.execute("INSERT INTO accounts VALUES (1, 'before')")
        connections = [stack.enter_context(closing(connect(postgres))) for _ in range(3)]
        first, second, open_one = (connection.cursor() for connection in connections)

        def leave_one_open():
            # A new slot waits for those open at its start, and again for those that began since.
            until(lambda: is_waited_for(observer, first_id), seconds=30)
            second_id = begin(second)
            first.execute("COMMIT")
            until(lambda: is_waited_for(observer, second_id), seconds=30)
            open_one.execute("BEGIN; UPDATE accounts SET name = 'after' WHERE id = 1")
            second.execute("COMMIT")

        first_id = begin(first)
        leaving = stack.enter_context(ThreadPoolExecutor(1)).submit(leave_one_open)
        with running_debezium(tmp_path, postgres, ["public.accounts"]) as debezium:
            leaving.result()
            debezium.events_until(lambda events: len(events) == 1)
            open_one.execute("COMMIT")
            rows = changelog_rows(debezium.events_until_now(), "public.accounts")
    read, update = rows
    assert (read["op"], update["op"]) == ("r", "u")
    assert update["lsn"] < read["lsn"]
    assert mirror_of(rows).mirror == {(1,): {"id": 1, "name": "after"}}
    assert mirror_of(rows, "lsn").mirror == {(1,): {"id": 1, "name": "before"}}  # wrong
