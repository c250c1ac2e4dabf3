"""Versions of past hours and days, asked for by the names of their tags."""

from __future__ import annotations

import pytest

import neve
from neve.errors import NotFoundError
from tests.support.lakes import sqlite_settings
from tests.unit.upkeep.test_retention import DAY, NOW, Bench, fill

# A commit of a row each half hour, the last one at 05:29 on 2026-11-03.
COMMITS = 96
ROWS = {"2026-11-02": 37, "2026-11-03": 85, "2026-11-03T05": 95}


def test_a_past_version_is_queried_by_its_name_for_as_long_as_the_policy_says(
    embedded_lake, tmp_path
):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        fill(lake, COMMITS, apart_seconds=1800)
        assert Bench(lake).run().snapshots > 60
        for sql in (lake.sql, lake.spark.sql):
            assert {name: rows_of(sql, name) for name in ROWS} == ROWS
        Bench(lake, now=NOW + 2 * DAY).run()
        lake.sql("REFRESH TABLE ns.t")
        assert rows_of(lake.sql, "2026-11-02") == ROWS["2026-11-02"]
        Bench(lake, now=NOW + 40 * DAY).run()
        with pytest.raises(NotFoundError, match="its history log begins after 2026-11-02"):
            rows_of(lake.sql, "2026-11-02")


def rows_of(sql, name):
    return sql(f"SELECT count(*) AS n FROM ns.t VERSION AS OF '{name}'").collect()[0].n
