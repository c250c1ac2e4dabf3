"""What `neve health` and `neve maintain` say to bad input, and the status they end with."""

from __future__ import annotations

import os

import pytest
import yaml

import neve
from neve.cli.app import run
from tests.support.lakes import sqlite_settings
from tests.support.leftovers import local_path
from tests.unit.upkeep.test_health import SCHEMA, make_table

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
    status, said, _ = neve_command("maintain", upkeep=upkeep)
    assert status == 3
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
