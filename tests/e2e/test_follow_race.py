"""Two processes that use one follower at once: every commit is worked on by one of them, once."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pyarrow as pa
import pytest

import neve
from tests.support.lakes import sqlite_settings
from tests.support.servers import SHORT_LIVED_JAVA

COMMITS = 20
# Ends when somebody, this process or the other one, has committed up to the end. No JVM.
CONSUMER = """
import json, sys
from pathlib import Path

import neve
from neve.errors import ConflictError
from tests.support.lakes import sqlite_settings

done = []
with neve.open(sqlite_settings(Path(sys.argv[1]))) as lake:
    print("ready", flush=True)
    sys.stdin.readline()
    while True:
        try:
            for batch in lake.follow("shop.orders", "orders", max_commits=1):
                batch.commit()
                done.append([batch.since, batch.until])
            break
        except ConflictError:
            pass
print(json.dumps(done), flush=True)
"""
KEEPER = """
import sys
from pathlib import Path

import neve
from neve.errors import ConflictError
from tests.support.lakes import sqlite_settings

with neve.open(sqlite_settings(Path(sys.argv[1]))) as lake:
    lake.spark
    print("ready", flush=True)
    sys.stdin.readline()
    report = lake.follow("shop.orders", "totals", max_commits=2).to_table(
        "shop.totals",
        keys=["v"],
        transform="SELECT v, count(*) AS orders FROM changes GROUP BY v",
        add=["orders"],
    )
print(report.batches, flush=True)
"""


def together(program, directory, seconds):
    """Run a program in two processes that begin at the same moment; return what each said."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(directory)],
            env={**os.environ, **SHORT_LIVED_JAVA},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        said = [process.communicate(timeout=seconds)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0]
    return said


def test_two_processes_share_the_batches_of_one_follower(tmp_path):
    rows = pa.table({"id": pa.array([1], pa.int64())})
    with neve.open(sqlite_settings(tmp_path)) as lake:
        lake.catalog().create_namespace("shop")
        table = lake.catalog().create_table("shop.orders", rows.schema)
        for _ in range(COMMITS):
            table.append(rows)
        said = together(CONSUMER, tmp_path, seconds=120)
        done = {until: since for each in said for since, until in json.loads(each)}
        assert sum(len(json.loads(each)) for each in said) == COMMITS
        snapshots = [each.snapshot_id for each in table.metadata.snapshots]
        assert done == dict(zip(snapshots, [None, *snapshots], strict=False))


@pytest.mark.soak
def test_two_processes_keep_one_table(embedded_lake, tmp_path):
    """A batch that both write is there once; the slower one goes on after it."""
    with neve.open(sqlite_settings(tmp_path)) as lake:
        lake.sql("CREATE NAMESPACE shop")
        lake.sql("CREATE TABLE shop.orders (id BIGINT, v STRING) USING iceberg")
        for number in range(8):
            lake.sql(f"INSERT INTO shop.orders VALUES ({number}, 'a'), ({number}, 'b{number % 2}')")
        said = together(KEEPER, tmp_path, seconds=300)
        assert sum(map(int, said)) == 4
        totals = lake.sql("SELECT v, orders FROM shop.totals").collect()
        assert sorted(map(tuple, totals)) == [("a", 8), ("b0", 4), ("b1", 4)]
