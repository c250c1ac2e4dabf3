"""What the service shows of the health of tables, and that it shows nothing outdated."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import neve
from neve.config import Settings
from neve.errors import CatalogError
from neve.observe.metrics import Registry, common_labels
from neve.service.maintenance import TableMaintenance
from tests.support.lakes import sqlite_settings
from tests.unit.upkeep.test_health import make_table


class Service:
    """The part of `neve run` that maintains tables, and its metrics."""

    def __init__(self, lake):
        self.registry = Registry(common_labels(Settings()))
        self.part = TableMaintenance(lake, self.registry)

    def look(self):
        """Maintain once; return what is shown of the table."""
        self.part.maintain(threading.Event())
        return {
            sample.name.removeprefix("neve_table_"): sample.value
            for family in text_string_to_metric_families(self.registry.text().decode())
            for sample in family.samples
            if sample.labels.get("table") == "shop.events" or not family.name.startswith("neve_t")
        }


@pytest.fixture
def lake(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        lake.catalog().create_namespace("shop")
        yield lake


def refuse(*_, **__):
    raise CatalogError("the catalog is away")


def test_old_numbers_never_pass_for_what_is(lake, monkeypatch):
    table = make_table(lake, "shop.events", 2)
    service = Service(lake)
    shown = service.look()
    assert (shown["files"], shown["manifests"], shown["snapshots"]) == (2, 2, 2)
    assert (shown["staged_batches"], shown["held_batches"], shown["skew"]) == (0, 0, 1)
    assert shown["health"] > 0
    assert shown["neve_maintain_failed_runs_total"] == 0
    # Nothing is known of an index that it does not have, nor of files that were not listed.
    assert not {"index_behind_commits", "unreferenced_bytes"} & shown.keys()

    with monkeypatch.context() as away:
        away.setattr("neve.service.maintenance.plan_maintenance", refuse)
        make_table(lake, "shop.new", 1)
        table.append(table.scan().to_arrow())
        shown = service.look()
        # Planning failed, and health is looked at all the same.
        assert (shown["files"], shown["neve_maintain_failed_runs_total"]) == (3, 1)
        away.setattr("neve.service.maintenance.check_health", refuse)
        shown = service.look()
        assert not {"health", "files", "snapshots"} & shown.keys()
        assert shown["neve_maintain_failed_runs_total"] == 3

    manifest = table.current_snapshot().manifests(table.io)[0].manifest_path
    Path(manifest.removeprefix("file://")).write_bytes(b"damaged")
    shown = service.look()
    assert shown["health"] == 0
    assert "files" not in shown


def test_unreferenced_bytes_are_those_of_the_newest_listing(lake, monkeypatch):
    table = make_table(lake, "shop.events", 1)
    lost = Path(table.location().removeprefix("file://"), "data", "lost.parquet")
    lost.write_bytes(b"lost")
    os.utime(lost, (0, 0))
    service = Service(lake)
    monkeypatch.setattr(service.part, "_next_listing", 0.0)
    assert service.look()["unreferenced_bytes"] == 4
    lost.unlink()
    # Not listed again: it costs a request for each thousand files.
    assert service.look()["unreferenced_bytes"] == 4
    monkeypatch.setattr(service.part, "_next_listing", 0.0)
    assert service.look()["unreferenced_bytes"] == 0
    lake.catalog().drop_table("shop.events")
    assert "unreferenced_bytes" not in service.look()


def test_one_run_is_given_the_budget_of_the_configuration(lake, monkeypatch):
    make_table(lake, "shop.events", 12, hours=2)
    section = {"max_bytes": 10_000, "max_seconds": 60, "tables": {"shop.events": {"compact": True}}}
    upkeep = Settings.model_validate({"upkeep": section}).upkeep
    lake.settings = lake.settings.model_copy(update={"upkeep": upkeep})
    given = []

    class Maintainer:
        def __init__(self, _, **options):
            given.append(options["max_seconds"])

        def carry_out(self, plans):
            given.extend((len(plan.actions), len(plan.deferred)) for plan in plans)
            return []

    monkeypatch.setattr("neve.service.maintenance.Maintainer", Maintainer)
    TableMaintenance(lake, Registry({})).maintain(threading.Event())
    assert given == [60, (1, 1)]
