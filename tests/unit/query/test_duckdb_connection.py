"""All queries of a process share one DuckDB database; nothing of one is seen by another."""

import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.types import StringType

import neve
from neve.errors import SqlError
from neve.query.duckdb_connection import connect_shared, forget_shared_database
from neve.query.duckdb_execution import Execution
from neve.query.run import run
from tests.support.lakes import sqlite_settings

MIB = 1024 * 1024
ROOT = Path(__file__).parents[3]
SLOW = "SELECT sum(a * b) FROM range(1000000000) x(a), range(9) y(b)"
APPEND = """
import sys, pyarrow as pa, neve
from tests.support.lakes import sqlite_settings
from pathlib import Path
with neve.open(sqlite_settings(Path(sys.argv[1]))) as lake:
    lake.catalog().load_table("ns.t").append(pa.table({"id": [7]}))
"""
FORK = """
import os, duckdb
from neve.query.duckdb_connection import connect_shared
connect_shared().execute("CREATE TABLE of_the_parent AS FROM range(1000000) t(a)")
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
else:
    try:
        connect_shared().execute("SELECT sum(a) FROM of_the_parent").fetchall()
    except duckdb.CatalogException:
        os._exit(0)
    os._exit(1)
"""


@pytest.fixture
def lake(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        lake.catalog().create_namespace("ns")
        for number in range(4):
            rows = pa.table({"id": pa.array([number] * (number + 1), pa.int64())})
            lake.catalog().create_table(f"ns.t{number or ''}", rows.schema).append(rows)
        yield lake


def count(lake, table="ns.t"):
    (row,) = lake.read(f"SELECT count(*) AS n FROM {table}", "duckdb").to_pylist()
    return row["n"]


def test_queries_of_a_process_share_a_database(lake, monkeypatch):
    count(lake)
    monkeypatch.setattr(duckdb, "connect", lambda **_: pytest.fail("another database"))
    assert count(lake) == 1


def test_a_commit_of_another_process_is_seen_by_the_next_query(lake, tmp_path):
    assert count(lake) == 1
    subprocess.run([sys.executable, "-c", APPEND, str(tmp_path)], check=True, cwd=ROOT)
    assert count(lake) == 2


def test_columns_that_were_added_and_renamed_are_seen_by_the_next_query(lake):
    assert lake.read("SELECT * FROM ns.t", "duckdb").column_names == ["id"]
    table = lake.catalog().load_table("ns.t")
    with table.update_schema() as schema:
        schema.rename_column("id", "number")
        schema.add_column("name", StringType())
    assert lake.read("SELECT * FROM ns.t", "duckdb").to_pylist() == [{"number": 0, "name": None}]


def test_a_table_that_was_made_anew_is_another_one(lake):
    assert count(lake) == 1
    lake.catalog().drop_table("ns.t")
    lake.catalog().create_table("ns.t", pa.schema([("name", pa.string())]))
    assert lake.read("SELECT * FROM ns.t", "duckdb").schema == pa.schema([("name", pa.string())])


def test_threads_ask_at_once(lake):
    forget_shared_database()
    tables = {f"ns.t{number or ''}": number + 1 for number in range(4)}
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda table: (table, count(lake, table)), [*tables] * 20))
    assert all(tables[table] == rows for table, rows in answers)


def test_a_query_that_is_cancelled_leaves_others_alone(lake):
    rows = pa.table({"id": pa.array(range(20_000), pa.int64())})
    lake.catalog().load_table("ns.t").append(rows)
    cancelled, kept = Execution(), run(lake, "SELECT id FROM ns.t", "duckdb")
    with ThreadPoolExecutor(1) as thread:
        slow = thread.submit(cancelled.run, SLOW, None)
        while not slow.done():
            cancelled._connection.interrupt()
        with pytest.raises(SqlError, match="Interrupted"):
            slow.result()
    cancelled.close()
    assert sum(len(batch) for batch in kept.batches) == 20_001
    assert count(lake) == 20_001


def test_settings_and_views_end_with_their_connection():
    first = connect_shared()
    first.execute("SET TimeZone = 'Asia/Tokyo'; CREATE TEMP VIEW seen AS SELECT 1")
    second = connect_shared()
    assert second.execute("SELECT current_setting('TimeZone')").fetchall() == [("UTC",)]
    with pytest.raises(duckdb.CatalogException):
        second.execute("FROM seen")


def test_a_secret_is_seen_by_its_own_query_alone():
    execution = Execution()
    execution.create_secret("CREATE TEMPORARY SECRET mine (TYPE s3, KEY_ID 'a', SECRET 'b')")
    listed = "SELECT name FROM duckdb_secrets()"
    assert [batch.to_pylist() for batch in execution.run(listed, None).batches] == [
        [{"name": "mine"}]
    ]
    assert connect_shared().execute(listed).fetchall() == []


def test_data_files_are_not_kept_in_memory(lake):
    assert count(lake, "ns.t3 WHERE id = 3") == 4
    assert connect_shared().execute("FROM duckdb_external_file_cache()").fetchall() == []


def test_the_memory_of_a_large_query_is_given_back():
    forget_shared_database()
    connection = connect_shared()
    before = resident_bytes()
    connection.execute(
        "SELECT count(*) FROM (SELECT DISTINCT a FROM range(8000000) t(a))"
    ).fetchall()
    connection.close()
    deadline = time.monotonic() + 60
    while resident_bytes() > before + 100 * MIB:
        assert time.monotonic() < deadline, f"{resident_bytes() / MIB:.0f} MiB are kept"
        time.sleep(0.2)


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("kind", [duckdb.FatalException, duckdb.InternalException])
def test_after_a_fatal_error_there_is_a_new_database(lake, kind):
    broken = connect_shared()
    broken.execute("CREATE TABLE of_the_broken_database (a INTEGER)")
    execution = Execution()

    def fail():
        raise kind("the database has been invalidated")

    # Nothing makes DuckDB fail so on purpose.
    with pytest.raises(SqlError, match="invalidated"):
        execution._wait(fail)
    with pytest.raises(duckdb.CatalogException):
        connect_shared().execute("FROM of_the_broken_database")
    assert count(lake) == 1


def test_a_forked_process_has_a_database_of_its_own():
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=60)
