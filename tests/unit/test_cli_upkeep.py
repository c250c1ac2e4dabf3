"""What `neve health` and `neve maintain` say to bad input, and the status they end with."""

from __future__ import annotations

import json
import os
import re
from datetime import datetime, timezone

import pytest
import yaml

import neve
from neve.cli.app import run
from neve.cli.maintenance_plan import show_plans
from neve.cli.output import TextOutput
from neve.upkeep.kept_versions import KeptVersion
from neve.upkeep.orphans import Orphan, OrphanPlan
from neve.upkeep.plan import Action, Step, TablePlan
from neve.upkeep.removals import PlannedOrphans, PlannedVersions
from neve.upkeep.retention import RetentionPlan
from tests.support.lakes import sqlite_settings
from tests.support.leftovers import local_path
from tests.unit.upkeep.test_health import SCHEMA, make_table
from tests.unit.upkeep.test_maintenance_plan import TABLE as MIRROR
from tests.unit.upkeep.test_maintenance_plan import make_mirror

MERGES = {
    "interval": "1m",
    "tables": [
        {
            "namespace": "shop",
            "changelog_table": "log",
            "mirror_table": "rows",
            "primary_keys": ["id"],
            "sequence_column": ["lsn"],
        }
    ],
}


@pytest.fixture
def lake(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        lake.catalog().create_namespace("shop")
        yield lake


@pytest.fixture
def neve_command(lake, tmp_path, capsys):
    """Run a command with further sections; return its status, and what it printed."""

    def call(*words, **sections):
        document = lake.settings.model_dump(mode="json", exclude_none=True, include={"catalog"})
        config = tmp_path / "neve.yaml"
        config.write_text(yaml.safe_dump({**document, **sections}))
        status = run([*words, "--config", str(config)])
        printed = capsys.readouterr()
        return status, " ".join(printed.out.split()), printed.err

    return call


def test_a_table_with_an_unreadable_manifest_is_left_alone_and_reported(lake, neve_command):
    table = make_table(lake, "shop.events", 6)
    manifest = local_path(table.current_snapshot().manifests(table.io)[0].manifest_path)
    manifest.write_bytes(b"damaged")
    policy = {"compact": True, "expire": True, "remove_orphans": True}
    upkeep = {"retain_min": 1, "tables": {"shop.events": policy}}
    files = sorted(local_path(table.location()).rglob("*"))
    for words in (["health"], ["maintain", "--dry-run"]):
        status, said, _ = neve_command(*words, upkeep=upkeep)
        assert status == 3
        assert "shop.events is left alone: " in said
        assert f"{manifest.name} is not a whole Avro file" in said
        assert "neve recover --table shop.events --dry-run" in said
        assert "Nothing is to be done" not in said
    status, said, _ = neve_command("maintain", upkeep=upkeep)
    assert status == 3
    assert " failed shop.events failed: " in said
    assert "neve recover --table shop.events --dry-run" in said
    assert sorted(local_path(table.location()).rglob("*")) == files


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"upkeep": {"retain": "10m"}}, "retain (600 s) is shorter than reader_grace (3600 s)"),
        (
            {"upkeep": {"tables": {"shop.*": {"retain": "10m"}}}},
            "tables.shop.*.retain (600 s) is shorter than reader_grace (3600 s)",
        ),
        (
            {"upkeep": {"retain": "5s", "reader_grace": 0}, "merge": MERGES},
            "upkeep.retain (5 s) is shorter than merge.interval (60 s)",
        ),
        (
            {"upkeep": {"tables": {"shop.evnets": {"compact": True}}}},
            "upkeep.tables: there is no table shop.evnets",
        ),
        ({"upkeep": {"tables": {"shp.*": {}}}}, "upkeep.tables: shp.* fits no table"),
    ],
)
def test_a_short_retention_and_a_policy_without_a_table_are_refused(
    lake, neve_command, sections, said
):
    make_table(lake, "shop.events", 1)
    for words in (["maintain"], ["maintain", "--dry-run"]):
        status, out, error = neve_command(*words, **sections)
        assert (status, out) == (2, "")
        (line,) = error.splitlines()
        assert said in line
    if "there is no table" in said or "fits no table" in said:
        status, _, told = neve_command("health", **sections)
        assert (status, said in told) == (0, True)


def test_a_budget_that_is_too_small_leaves_the_table_and_says_what_it_needs(lake, neve_command):
    make_table(lake, "shop.events", 6)
    upkeep = {"tables": {"shop.events": {"compact": True}}, "min_small_files": 2}
    status, said, _ = neve_command("maintain", "--max-bytes", "1", upkeep=upkeep)
    assert status == 0
    assert re.search(r"shop\.events 0 0 0 [0-9.]+ left ", said)
    assert "beyond the budget of bytes" in said
    assert "bytes, which the budget must have" in said


def test_no_orphans_are_removed_where_two_tables_share_a_location(lake, neve_command):
    table = make_table(lake, "shop.events", 1)
    lake.catalog().create_table("shop.other", SCHEMA, location=table.location())
    orphan = local_path(table.location()) / "data" / "lost.parquet"
    orphan.write_bytes(b"lost")
    os.utime(orphan, (0, 0))
    upkeep = {"tables": {"shop.events": {"remove_orphans": True}}}
    for words in (["maintain", "--dry-run"], ["maintain"]):
        status, said, _ = neve_command(*words, upkeep=upkeep)
        assert status == 0
        assert "no orphans are removed: its location is shared with table shop.other" in said
        assert orphan.exists()


KEEP_NOTHING = {"reader_grace": 0, "retain": "1ms", "retain_min": 1, "keep_hourly": 0}
KEEP_NOTHING |= {"keep_daily": 0, "min_small_files": 2}


def lose_files(table, count):
    """Put files into a table's location that no snapshot names; return their names."""
    names = [f"lost-{number:03}.parquet" for number in range(count)]
    for name in names:
        path = local_path(table.location()) / "data" / name
        path.write_bytes(b"lost")
        os.utime(path, (0, 0))
    return names


def test_a_dry_run_names_each_file_group_snapshot_and_orphan_with_the_reason(lake, neve_command):
    table = make_table(lake, "shop.events", 50, hours=25)
    orphans = lose_files(table, 23)
    table.manage_snapshots().create_tag(table.metadata.snapshots[0].snapshot_id, "kept").commit()
    allowed = {"compact": True, "expire": True, "remove_orphans": True}
    upkeep = {**KEEP_NOTHING, "tables": {"shop.events": allowed}}
    status, said, _ = neve_command("maintain", "--dry-run", upkeep=upkeep)
    assert status == 0
    group = r"timestamp_day=2026-11-17 2 [\d.]+ kB closed hour 2026-11-17 10:00 2 files become 1"
    assert re.search(group, said)
    snapshots = [each.snapshot_id for each in table.metadata.snapshots]
    assert f"{snapshots[1]} expires not current for more than 0s" in said
    assert f"{snapshots[0]} expires" not in said
    assert len(re.findall(r"data/lost-\d+\.parquet 4 B 1970-01-01 00:00:00", said)) == 20
    for kind, count in (("file groups", 25), ("snapshots", 48), ("orphans", 23)):
        assert f"and {count - 20} more: --json names all {count}" in said, kind

    status, said, _ = neve_command("--json", "maintain", "--dry-run", upkeep=upkeep)
    rows = json.loads(said)
    assert sum(len(row["paths"]) for row in rows) == 50
    (expire,) = [row for row in rows if row["snapshots"]]
    assert [each["snapshot_id"] for each in expire["snapshots"]] == snapshots[1:-1]
    (remove,) = [row for row in rows if row["orphans"]]
    assert sorted(each["path"].rpartition("/")[2] for each in remove["orphans"]) == orphans


def test_a_dry_run_names_the_tags_that_are_dropped(lake, neve_command, monkeypatch):
    table = make_table(lake, "shop.events", 3)
    table.manage_snapshots().create_tag(
        table.metadata.snapshots[0].snapshot_id, "short", max_ref_age_ms=1
    ).commit()
    tomorrow = datetime.now(timezone.utc).timestamp() + 86_400
    monkeypatch.setattr("neve.upkeep.plan.time.time", lambda: tomorrow)
    upkeep = {**KEEP_NOTHING, "tables": {"shop.events": {"expire": True}}}
    status, said, _ = neve_command("maintain", "--dry-run", upkeep=upkeep)
    assert status == 0
    assert "short tag is dropped its own RETAIN is over" in said


def test_what_is_not_done_by_intention_is_said_to_programs_too(lake, neve_command):
    table = make_table(lake, "shop.events", 1)
    lake.catalog().create_table("shop.other", SCHEMA, location=table.location())
    upkeep = {"tables": {"shop.events": {"remove_orphans": True}}}
    _, said, _ = neve_command("--json", "maintain", "--dry-run", upkeep=upkeep)
    assert any("shared with table shop.other" in (row["note"] or "") for row in json.loads(said))


def test_a_dry_run_says_which_versions_are_tagged_and_that_a_search_stopped(capsys):
    until = datetime(2026, 12, 2, tzinfo=timezone.utc)
    versions = RetentionPlan("shop.t", "u", new_tags=(KeptVersion("2026-11-01", 7, until),))
    file = Orphan("file:///t/data/\x1b[2J.parquet", 5, until)
    orphans = OrphanPlan("shop.t", "u", (file,), is_complete=False)
    actions = (
        Action("shop.t", Step.EXPIRE, "", "", versions=PlannedVersions(versions, *[None] * 5)),
        Action("shop.t", Step.ORPHANS, "", "", orphans=PlannedOrphans(orphans, None, 0.0)),
    )
    show_plans(TextOutput(), [TablePlan("shop.t", None, actions)])
    said = " ".join(capsys.readouterr().out.split())
    why = "the version of that time is kept until 2026-12-02 00:00 UTC"
    assert f"7 2026-11-01 is tagged {why}" in said
    assert "The search stopped at so many: the next run finds the others." in said
    # A name is shown, and not obeyed.
    assert r"data/\x1b[2J.parquet" in said


def test_the_status_of_an_index_that_a_small_mirror_lacks_says_that_it_needs_none(
    lake, neve_command
):
    make_mirror(lake)
    status, said, _ = neve_command("index", "status", MIRROR)
    assert status == 0
    assert "it was never built" in said
    assert said.endswith("A mirror of fewer than 200,000 rows needs none: merges scan its keys.")
    _, said, _ = neve_command("--json", "index", "status", MIRROR)
    assert json.loads(said)["state"] == "missing"
