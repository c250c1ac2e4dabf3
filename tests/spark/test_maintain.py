"""Maintenance: closed hours become sorted files, merges are never blocked, no row is lost."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import neve
from neve.cli.app import run
from neve.config import Settings
from neve.errors import ConfigError, StorageError
from neve.lake.compaction import GroupRewrite
from neve.merge.strategy import Strategy
from neve.observe.metrics import Registry, common_labels
from neve.service.maintenance import TableMaintenance
from neve.upkeep.maintainer import Maintainer
from neve.upkeep.plan import Step, plan_maintenance
from tests.support.file_opens import counted_opens
from tests.support.lakes import sqlite_settings
from tests.support.maintained import (
    TRACES,
    churn,
    data_files,
    names_by,
    with_policies,
    write,
)
from tests.support.merging import Mirrored, event
from tests.support.power_cut import power_cut
from tests.support.readers import READERS


@pytest.fixture
def lake(embedded_lake, tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield lake


def test_closed_hours_become_sorted_files_with_bloom_filters(lake):
    written = write(lake, [0, 1])
    (before,) = lake.health(TRACES)
    plans = lake.plan_maintenance()
    (report,) = lake.maintain(plans=plans)
    assert (report.rewritten_files, report.new_files, report.left, report.error) == (
        12,
        2,
        [],
        None,
    )
    for engine in READERS:
        assert names_by(lake, engine) == written, engine
    for path in data_files(lake):
        file = pq.ParquetFile(path)
        rows = file.read(["service_name", "timestamp"])
        assert rows == rows.sort_by([("service_name", "ascending"), ("timestamp", "ascending")])
        assert has_bloom_filter(path)
    (after,) = lake.health(TRACES)
    assert (before.files, after.files) == (12, 2)
    assert (before.files_per_key, after.files_per_key) == (6.0, 1.0)
    assert after.score > before.score
    size = {"before": before.bytes, "after": after.bytes}
    assert (report.stored_bytes, report.rewritten_bytes) == (size["before"], size["before"])
    assert report.written_share == round(report.new_bytes / size["before"], 3)
    assert report.new_bytes == size["after"]
    # Each row was rewritten once; nothing is left to do.
    assert (before.writes_per_row, report.writes_per_row, after.writes_per_row) == (1.0, 2.0, 2.0)
    assert [plan.actions for plan in lake.plan_maintenance()] == [()]


def has_bloom_filter(path):
    """Tell whether every row group has one, and not of the mebibyte that Parquet takes itself."""
    rows = duckdb.execute(
        "SELECT bloom_filter_length FROM parquet_metadata(?) WHERE path_in_schema = 'trace_id'",
        [str(path)],
    ).fetchall()
    return all(size is not None and size < 1000 for (size,) in rows)


def test_after_many_files_were_replaced_no_manifest_names_them(lake, monkeypatch):
    written = write(lake, [0, 1])
    monkeypatch.setattr("neve.upkeep.plan._MANY_REPLACED_FILES", 12)
    (report,) = lake.maintain()
    assert (report.rewritten_files, report.left, report.error) == (12, [], None)
    table = lake.catalog().load_table(TRACES)
    (manifest,) = table.current_snapshot().manifests(table.io)
    counts = (manifest.added_files_count, manifest.existing_files_count)
    assert (sum(counts), manifest.deleted_files_count) == (2, 0)
    for engine in READERS:
        assert names_by(lake, engine) == written, engine
    assert [plan.actions for plan in lake.plan_maintenance()] == [()]


def test_small_files_are_read_once(lake):
    write(lake, [0, 1], files=30)
    old = {path.name for path in data_files(lake)}
    table = lake.catalog().load_table(TRACES)
    manifests = {Path(m.manifest_path).name for m in table.current_snapshot().manifests(table.io)}
    metadata = Path(table.location().removeprefix("file://"), "metadata")
    data = data_files(lake)[0].parent
    with counted_opens(data, metadata) as opens:
        (health,) = lake.health(TRACES)
    # Health reads no data, and each manifest once.
    assert {opens[name] for name in old} == {0}
    assert {opens[name] for name in manifests} == {1}
    plans = lake.plan_maintenance(TRACES)
    with counted_opens(data, metadata) as opens:
        (report,) = lake.maintain(plans=plans)
    assert (report.rewritten_files, report.new_files, health.files) == (60, 2, 60)
    assert {opens[name] for name in old} == {1}


def test_a_dry_run_names_what_is_then_done(lake, tmp_path, capsys):
    write(lake, [0])
    catalog = {"type": "sqlite", "uri": lake.settings.catalog.uri}
    catalog["warehouse"] = str(tmp_path / "warehouse")
    config = tmp_path / "neve.yaml"
    config.write_text(json.dumps({"catalog": catalog}))
    snapshots = len(lake.table(TRACES).history)
    assert run(["maintain", "--dry-run", "--json", "-c", str(config)]) == 0
    (action,) = json.loads(capsys.readouterr().out)
    assert (action["why"], action["files"]) == ("closed hour 2026-11-16 10:00", 6)
    assert (action["effect"], action["partition"]) == (
        "6 files become 1",
        "timestamp_day=2026-11-16",
    )
    assert len(action["paths"]) == 6
    assert len(lake.table(TRACES).history) == snapshots
    assert run(["maintain", "--max-bytes", "1kB", "--json", "-c", str(config)]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert report["actions"] == 0
    assert report["left"] == ["closed hour 2026-11-16 10:00: beyond the budget of bytes"]
    assert (report["written_share"], report["writes_per_row"]) == (0.0, 1.0)
    assert run(["maintain", "--max-bytes", "much", "-c", str(config)]) == 2
    assert run(["maintain", "--max-minutes", "0", "--json", "-c", str(config)]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert (report["actions"], report["left"]) == (
        0,
        ["closed hour 2026-11-16 10:00: beyond the budget of time"],
    )
    assert run(["maintain", "-c", str(config)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(
        r"otel\.traces: [\d.]+ kB written anew, \d+% of the [\d.]+ kB that it had", said
    )
    assert "each row was written at most 2.00 times so far, on average" in said


@pytest.mark.parametrize("point", ["compact.written", "compact.committed"])
def test_a_cut_loses_nothing_and_the_next_run_goes_on(lake, point):
    written = write(lake, [0, 1])
    with power_cut(point):
        Maintainer(lake).carry_out(lake.plan_maintenance())
    assert names_by(lake, "PyIceberg") == written
    lake.maintain()
    assert len(data_files(lake)) == 2
    assert names_by(lake, "PyIceberg") == written


def test_a_publish_meanwhile_is_kept(lake, monkeypatch):
    written = write(lake, [0])
    commit = GroupRewrite._commit

    def late(rewrite, groups, counters):
        written.update(write(lake, [1], files=2))
        commit(rewrite, groups, counters)

    monkeypatch.setattr(GroupRewrite, "_commit", late)
    (report,) = lake.maintain()
    assert (report.rewritten_files, report.conflicts) == (6, 0)
    assert names_by(lake, "PyIceberg") == written


def test_groups_are_rewritten_though_the_snapshot_that_was_read_expires_meanwhile(
    lake, monkeypatch
):
    written = write(lake, [0, 1, 2])
    commit, commits = GroupRewrite._commit, []

    def expiring(rewrite, groups, counters):
        commit(rewrite, groups, counters)
        if not commits:
            lake.query(
                f"CALL system.expire_snapshots(table => '{TRACES}', retain_last => 1, "
                "older_than => TIMESTAMP '2100-01-01 00:00:00')"
            )
        commits.append(groups)

    monkeypatch.setattr(GroupRewrite, "_commit", expiring)
    monkeypatch.setattr("neve.upkeep.table_rewriting._SECONDS_BETWEEN_COMMITS", 0.0)
    (report,) = lake.maintain()
    assert (report.error, report.left, report.rewritten_files) == (None, [], 18)
    assert len(commits) >= 3
    assert names_by(lake, "PyIceberg") == written


def test_a_mirror_is_rewritten_and_merges_go_on(lake):
    mirrored = Mirrored(lake)
    churn(mirrored)
    (before,) = lake.health(mirrored.mirror)
    assert before.deleted_rows > 0
    assert before.index == "fresh"
    lake.maintain(mirrored.mirror)
    (after,) = lake.health(mirrored.mirror)
    assert (after.deleted_rows, after.rows) == (0, 20)
    mirrored.check()
    mirrored.append(event("D", 9000, 3), event("I", 9001, 500, "new"))
    mirrored.merge()
    mirrored.check()


def test_a_rewrite_that_loses_to_a_merge_gives_way_and_tries_again(lake, monkeypatch):
    mirrored = Mirrored(lake)
    churn(mirrored)
    commit, losses = GroupRewrite._commit, []

    def late(rewrite, groups, counters):
        if not losses:
            losses.append(groups)
            mirrored.append(event("U", 5000, 7, "meanwhile"))
            mirrored.merge()
        commit(rewrite, groups, counters)

    monkeypatch.setattr(GroupRewrite, "_commit", late)
    (report,) = lake.maintain(mirrored.mirror)
    assert (report.conflicts, report.error, report.left) == (1, None, [])
    mirrored.check()
    assert (lake.health(mirrored.mirror)[0]).deleted_rows == 0
    # What was written for the commit that lost is deleted.
    table = lake.catalog().load_table(mirrored.mirror)
    named = set(table.inspect.all_files()["file_path"].to_pylist())
    stored = Path(table.location().removeprefix("file://"), "data").rglob("*.parquet")
    assert {path.name for path in stored} <= {name.rsplit("/", 1)[1] for name in named}


def test_a_table_that_cannot_be_read_is_left_alone_and_stops_no_other(lake):
    write(lake, [0])
    with_policies(lake, **{"shop.events": {"compact": True}})
    lake.catalog().create_namespace("shop")
    table = lake.catalog().create_table("shop.events", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    manifest = table.current_snapshot().manifests(table.io)[0].manifest_path
    Path(manifest.removeprefix("file://")).write_bytes(b"not avro")
    traces, broken = lake.maintain()
    assert (traces.new_files, traces.error) == (1, None)
    assert (broken.table, broken.failed) == ("shop.events", True)
    assert "not a whole Avro file" in broken.error


def test_a_rewrite_that_fails_does_not_keep_orphans(lake, monkeypatch):
    written = write(lake, [0])
    orphan = data_files(lake)[0].with_name("orphan.parquet")
    orphan.write_bytes(b"of a killed task")
    os.utime(orphan, (1, 1))

    def fail(*_):
        raise StorageError("the store is away")

    monkeypatch.setattr(GroupRewrite, "write", fail)
    (report,) = lake.maintain(TRACES)
    assert (report.error, report.removed_orphans) == ("the store is away", 1)
    assert names_by(lake, "PyIceberg") == written


def test_statistics_tell_spark_how_many_values_a_column_has(lake):
    mirrored = Mirrored(lake)
    churn(mirrored)
    with_policies(lake, **{mirrored.mirror: {"statistics": ["id"]}})
    later = time.time() + 3600
    plans = plan_maintenance(lake, [mirrored.mirror], now=later)
    assert plans[0].actions[-1].step is Step.STATISTICS
    (report,) = Maintainer(lake).carry_out(plans)
    assert (report.actions, report.error, report.left) == (len(plans[0].actions), None, [])
    metadata = lake.catalog().load_table(mirrored.mirror).metadata
    counted = [
        blob.properties["ndv"]
        for file in metadata.statistics
        if file.snapshot_id == metadata.current_snapshot_id
        for blob in file.blob_metadata
    ]
    assert counted == ["20"]
    # Computed once for a snapshot; and the index, whose statistics file is replaced, is found.
    assert plan_maintenance(lake, [mirrored.mirror], now=later)[0].actions == ()
    mirrored.append(event("D", 9000, 3), event("I", 9001, 500, "new"))
    mirrored.merge(strategy=Strategy.INDEX)
    mirrored.check()


def test_a_policy_that_names_no_table_is_refused(lake):
    write(lake, [0], files=1)
    with_policies(lake, **{"otel.trace": {"compact": False}})
    with pytest.raises(ConfigError, match=r"there is no table otel\.trace"):
        lake.maintain()
    with_policies(lake, **{TRACES: {"compact": False}})
    write(lake, [0])
    assert [plan.actions for plan in lake.plan_maintenance()] == [()]


def test_versions_and_orphans_go_by_the_same_plan(lake):
    written = write(lake, [0])
    keep_nothing = {"reader_grace": 0, "retain": "1ms", "retain_min": 1}
    keep_nothing |= {"keep_hourly": 0, "keep_daily": 0}
    upkeep = Settings.model_validate({"upkeep": keep_nothing}).upkeep
    lake.settings = lake.settings.model_copy(update={"upkeep": upkeep})
    orphan = data_files(lake)[0].parent / "lost.parquet"
    orphan.write_bytes(b"lost")
    os.utime(orphan, (0, 0))
    (report,) = lake.health(TRACES, listing=True)
    assert (report.unreferenced_files, report.unreferenced_bytes) == (1, 4)
    (done,) = lake.maintain()
    assert (done.new_files, done.removed_orphans, done.error) == (1, 1, None)
    assert done.expired_snapshots > 0
    assert not orphan.exists()
    assert names_by(lake, "Spark") == written


def test_the_service_maintains_tables_and_tells(lake):
    write(lake, [0])
    registry = Registry(common_labels(Settings()))
    part = TableMaintenance(lake, registry)
    part.maintain(threading.Event())
    text = registry.text().decode()
    assert _value(text, "neve_maintain_rewritten_files_total") == 6
    assert _value(text, "neve_table_files") == 1
    assert _value(text, "neve_table_health") == 100
    stopped = threading.Event()
    stopped.set()
    write(lake, [1])
    part.maintain(stopped)
    assert len(data_files(lake)) == 7


def _value(text, name):
    line = next(line for line in text.splitlines() if line.startswith(f"{name}{{"))
    return float(line.rsplit(" ", 1)[1])
