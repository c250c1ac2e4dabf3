"""A kept table has every batch once: the process really killed at every step, and run again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

import neve
from neve import failpoints
from tests.support.lakes import sqlite_settings
from tests.support.servers import SHORT_LIVED_JAVA

POINTS = [name for name in failpoints.POINTS if name.startswith("follow.")]
# Each is a start of Spark: the others are for the long runs.
ESSENTIAL = ("follow.published",)
PROGRAM = """
import sys
from pathlib import Path

import neve
from tests.support.lakes import sqlite_settings

with neve.open(sqlite_settings(Path(sys.argv[1]))) as lake:
    lake.follow("shop.orders", "totals").to_table(
        "shop.totals",
        keys=["v"],
        transform="SELECT v, count(*) AS orders FROM changes GROUP BY v",
        add=["orders"],
    )
"""


@pytest.mark.parametrize(
    "point",
    [pytest.param(name, marks=() if name in ESSENTIAL else pytest.mark.soak) for name in POINTS],
)
def test_a_follower_killed_at_any_step_counts_every_row_once(embedded_lake, tmp_path, point):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        lake.sql("CREATE NAMESPACE shop")
        lake.sql("CREATE TABLE shop.orders (id BIGINT, v STRING) USING iceberg")
        lake.sql("INSERT INTO shop.orders VALUES (1, 'a'), (2, 'a'), (3, 'b')")
        killed = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(tmp_path)],
            env={**os.environ, **SHORT_LIVED_JAVA, failpoints.ENVIRONMENT_VARIABLE: point},
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        lake.sql("INSERT INTO shop.orders VALUES (4, 'a')")
        lake.follow("shop.orders", "totals").to_table(
            "shop.totals",
            keys=["v"],
            transform="SELECT v, count(*) AS orders FROM changes GROUP BY v",
            add=["orders"],
        )
        totals = lake.sql("SELECT v, orders FROM shop.totals").collect()
        assert sorted(map(tuple, totals)) == [("a", 3), ("b", 1)]
