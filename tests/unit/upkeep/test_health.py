"""The health of tables, from metadata alone."""

from __future__ import annotations

import io
import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

import neve
from neve.cli.health import shown_health
from neve.config import Settings
from neve.errors import NotFoundError, UnsupportedError
from neve.lake.file_store import FileStore
from neve.upkeep.health import TableHealth
from neve.upkeep.plan import Step
from neve.upkeep.policy import compaction_policy
from tests.support.lakes import sqlite_settings

HOUR = datetime(2026, 11, 17, 10, tzinfo=timezone.utc)
SCHEMA = Schema(
    NestedField(1, "timestamp", TimestamptzType(), required=False),
    NestedField(2, "service_name", StringType(), required=False),
    NestedField(3, "size", LongType(), required=False),
)


@pytest.fixture
def lake(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        lake.catalog().create_namespace("shop")
        yield lake


def make_table(lake, name, files, hours=1):
    table = lake.catalog().create_table(
        name,
        SCHEMA,
        partition_spec=PartitionSpec(PartitionField(1, 1000, DayTransform(), "timestamp_day")),
        sort_order=SortOrder(SortField(2, IdentityTransform())),
    )
    for number in range(files):
        at = HOUR + timedelta(hours=number % hours, seconds=number)
        rows = {"timestamp": [at, at], "service_name": ["a", "z"], "size": [1, 2]}
        table.append(pa.Table.from_pydict(rows, schema=SCHEMA.as_arrow()))
    return table


def test_small_files_cost_points_and_say_what_helps(lake):
    make_table(lake, "shop.events", 12, hours=2)
    (report,) = lake.health("shop.events")
    assert (report.files, report.small_files, report.rows) == (12, 12, 24)
    assert (report.manifests, report.snapshots, report.partitions) == (12, 12, 1)
    # Every file of an hour holds every service.
    assert report.files_per_key == 6.0
    findings = {finding.name: finding for finding in report.findings}
    assert set(findings) == {"small_files", "overlap"}
    assert findings["small_files"].effect.startswith("12 files become 2;")
    assert report.score == 100 - sum(finding.penalty for finding in report.findings) < 90


def test_a_table_in_order_has_all_points(lake):
    make_table(lake, "shop.events", 1)
    (report,) = lake.health()
    assert (report.score, report.findings) == (100, ())


def test_an_unreadable_manifest_is_reported_and_stops_no_other(lake):
    table = make_table(lake, "shop.broken", 2)
    make_table(lake, "shop.good", 1)
    manifest = table.current_snapshot().manifests(table.io)[0].manifest_path
    Path(manifest.removeprefix("file://")).write_bytes(b"not avro")
    broken, good = lake.health()
    assert (broken.table, broken.score) == ("shop.broken", 0)
    assert "is not a whole Avro file" in broken.error
    assert good.score == 100
    Path(manifest.removeprefix("file://")).unlink()
    assert "cannot be read" in lake.health("shop.broken")[0].error


def test_a_table_with_a_type_that_pyiceberg_does_not_know_is_no_broken_one(lake):
    """Spark writes and reads VARIANT: nobody has to recover such a table."""
    table = make_table(lake, "shop.events", 6)
    lost = Path(table.location().removeprefix("file://"), "data", "lost.parquet")
    lost.write_bytes(b"lost")
    os.utime(lost, (0, 0))
    file = Path(table.metadata_location.removeprefix("file://"))
    file.write_text(file.read_text().replace('"type":"long"', '"type":"variant"'))
    with pytest.raises(UnsupportedError, match="variant"):
        lake.reader().read(("shop", "events"))
    (report,) = lake.health(listing=True)
    assert (report.error, report.files, report.small_files) == (None, 6, 6)
    assert (report.unreferenced_files, report.notes) == (1, ())
    policy = {"compact": True, "expire": True, "remove_orphans": True}
    upkeep = Settings.model_validate({"upkeep": {"tables": {"shop.events": policy}}}).upkeep
    lake.settings = lake.settings.model_copy(update={"upkeep": upkeep})
    (plan,) = lake.plan_maintenance()
    assert plan.error is None
    assert [action.step for action in plan.actions] == [Step.SORT, Step.ORPHANS]


def test_names_patterns_and_namespaces(lake):
    for name in ("orders", "offers", "clients"):
        lake.catalog().create_table(f"shop.{name}", SCHEMA)

    def names(*patterns):
        return [report.table for report in lake.health(*patterns)]

    assert names("shop.o*") == ["shop.offers", "shop.orders"]
    assert names("shop") == ["shop.clients", "shop.offers", "shop.orders"]
    with pytest.raises(NotFoundError, match=r"shop\.orderz"):
        names("shop.orderz")


def test_policies_are_taken_from_the_longest_pattern(tmp_path):
    tables = {"otel.*": {"compact": False, "zorder": ["a"]}, "otel.logs": {"compact": True}}
    settings = sqlite_settings(tmp_path).model_copy(
        update={
            "upkeep": neve.config.Settings.model_validate({"upkeep": {"tables": tables}}).upkeep
        }
    )
    logs, traces = (compaction_policy(settings, name) for name in ("otel.logs", "otel.traces"))
    assert (logs.enabled, logs.zorder) == (True, ("a",))
    assert (traces.enabled, compaction_policy(settings, "shop.t").enabled) == (False, None)


def test_health_is_json_for_machines(lake, tmp_path, capsys):
    from neve.cli.app import run

    make_table(lake, "shop.events", 6)
    catalog = {"type": "sqlite", "uri": lake.settings.catalog.uri, "warehouse": str(tmp_path)}
    config = tmp_path / "neve.yaml"
    config.write_text(json.dumps({"catalog": catalog}))
    assert run(["health", "--json", "-c", str(config)]) == 0
    (report,) = json.loads(capsys.readouterr().out)
    assert report["findings"][0]["name"] == "small_files"
    assert run(["health", "-c", str(config)]) == 0
    shown = capsys.readouterr().out
    assert "6 files become 1" in shown
    assert "were searched" not in shown
    assert run(["health", "--listing", "-c", str(config)]) == 0
    searched = "1 of 1 tables were searched for files that no snapshot names, older than 3d"
    assert f"{searched}: 0 found" in capsys.readouterr().out


def test_a_listing_counts_the_files_of_tables_of_others_and_says_what_allows_to_remove_them(lake):
    table = make_table(lake, "shop.events", 1)
    lost = Path(table.location().removeprefix("file://"), "data", "lost.parquet")
    lost.write_bytes(b"lost")
    (report,) = lake.health(listing=True)
    assert (report.unreferenced_files, report.unreferenced_bytes) == (0, 0)
    os.utime(lost, (0, 0))
    (report,) = lake.health(listing=True)
    (finding,) = report.findings
    assert (finding.name, report.unreferenced_files, report.unreferenced_bytes) == ("orphans", 1, 4)
    assert finding.action.endswith("upkeep.tables: {shop.events: {remove_orphans: true}}")
    assert lake.health()[0].unreferenced_files is None


def test_no_files_are_listed_unless_that_is_asked_for(lake, monkeypatch):
    make_table(lake, "shop.events", 2)
    listed = []
    monkeypatch.setattr(FileStore, "list_files", lambda _, location: listed.append(location) or ())
    lake.health()
    assert listed == []
    lake.health(listing=True)
    assert len(listed) == 1


def test_a_location_that_is_not_listed_is_told_with_the_reason(lake):
    table = make_table(lake, "shop.events", 1)
    lake.catalog().create_table("shop.other", SCHEMA, location=table.location())
    for report in lake.health(listing=True):
        assert report.unreferenced_files is None
        assert "its files were not listed: its location is shared with" in report.notes[0]


@pytest.mark.parametrize(
    ("score", "encoding", "drawn"),
    [
        (100, "utf-8", "██████████ 100"),
        (55, "utf-8", "█████▌      55"),
        (55, "ascii", "######      55"),
        (1, "utf-8", "▏            1"),
    ],
)
def test_the_score_is_drawn_as_a_bar_that_the_terminal_can_show(
    monkeypatch, score, encoding, drawn
):
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    assert shown_health(TableHealth("shop.events", score))["health"] == drawn
    broken = shown_health(TableHealth("shop.events", 0, error="damaged"))
    assert broken["health"] == "unreadable"
