"""Expiry on tables with any past: deletes of all kinds, branches, cherry-picks, compaction."""

from __future__ import annotations

import random
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from neve.config import Settings
from neve.upkeep.retention import carry_out_retention, plan_retention
from neve.upkeep.retention_policy import retention_policy
from tests.support.table_histories import TableHistory

UPKEEP = {"retain": 0.001, "reader_grace": 0, "retain_min": 1, "keep_hourly": 0, "keep_daily": 0}


def reached(history):
    """Return what all snapshots reach, by Iceberg's own metadata tables."""
    table, paths = history.name, set()
    for relation, column in (
        ("all_files", "file_path"),
        ("all_manifests", "path"),
        ("snapshots", "manifest_list"),
    ):
        rows = history.lake.sql(f"SELECT {column} FROM {table}.{relation}").collect()
        paths |= {urlsplit(row[0]).path for row in rows}
    return paths


def files_of(history):
    location = urlsplit(history.lake.catalog().load_table(history.name).location()).path
    ends = (".parquet", ".avro", ".puffin")
    return {str(path) for path in Path(location).rglob("*") if path.suffix in ends}


def expire(history, chance):
    """Expire what can go; sometimes some others of it are needed."""
    lake, identifier = history.lake, tuple(history.name.split("."))
    settings = Settings.model_validate(
        {
            **lake.settings.model_dump(),
            "upkeep": {**UPKEEP, "tables": {history.name: {"expire": True}}},
        }
    )
    metadata, now = lake.reader().read(identifier), time.time() + 5
    policy = retention_policy(settings, identifier, metadata)
    needed = {number: "chosen" for number in metadata.snapshots if chance.random() < 0.5}
    plan = plan_retention(history.name, metadata, policy, now, needed)
    removed = carry_out_retention(lake, lake.ref(identifier), plan, policy, now, needed)
    assert removed.left == ""
    assert removed.snapshots == len(plan.expire)
    return removed.snapshots


def live_and_expire(lake, seed, rounds=2, steps=7):
    history, chance = TableHistory(lake, seed), random.Random(seed)
    removed = 0
    for _ in range(rounds):
        history.live(steps)
        others = files_of(history) - reached(history)
        rows = {
            snapshot: sorted(map(str, _rows(history, snapshot))) for snapshot in _snapshots(history)
        }
        removed += expire(history, chance)
        history.lake.sql(f"REFRESH TABLE {history.name}")
        assert files_of(history) - others == reached(history), seed
        for snapshot in _snapshots(history):
            assert sorted(map(str, _rows(history, snapshot))) == rows[snapshot], seed
    return removed


def _snapshots(history):
    rows = history.lake.sql(f"SELECT snapshot_id FROM {history.name}.snapshots").collect()
    return [row[0] for row in rows]


def _rows(history, snapshot):
    return history.lake.sql(f"SELECT * FROM {history.name} VERSION AS OF {snapshot}").collect()


def test_kept_snapshots_read_as_before_and_no_other_file_is_left(embedded_lake):
    assert live_and_expire(embedded_lake, 7) > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 130))
def test_the_same_with_many_histories(embedded_lake, seed):
    live_and_expire(embedded_lake, seed, rounds=4, steps=15)
