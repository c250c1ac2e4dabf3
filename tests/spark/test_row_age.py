"""Rows that are too old go with whole files, and nothing is rewritten."""

from __future__ import annotations

import uuid
from datetime import datetime, timezone

import pytest

import neve
from neve.config import Settings
from neve.upkeep.retention_policy import retention_policy
from neve.upkeep.row_age import delete_old_rows, plan_row_age
from neve.upkeep.spec import UpkeepSpec
from neve.upkeep.upkeep import Upkeep
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings
from tests.support.maintained import TRACES, names_by, with_policies, write

NOW = datetime(2026, 11, 18, 5, 30, tzinfo=timezone.utc).timestamp()


@pytest.fixture
def table(embedded_lake):
    namespace = f"n_{uuid.uuid4().hex[:12]}"
    embedded_lake.sql(f"CREATE NAMESPACE {namespace}")
    return f"{namespace}.t"


def fill(lake, table, partition, kind="TIMESTAMP"):
    lake.sql(
        f"CREATE TABLE {table} (id INT, at {kind}) USING iceberg PARTITIONED BY ({partition}) "
        "TBLPROPERTIES ('format-version'='3')"
    )
    days = ", ".join(
        f"({day}, {kind} '2026-11-{day} 04:00:00+00:00')" for day in (14, 15, 16, 17, 18)
    )
    lake.sql(f"INSERT INTO {table} VALUES {days}, (0, NULL)")
    return tuple(table.split("."))


def run(lake, identifier, age="2d", now=NOW):
    settings = Settings.model_validate(
        {
            **lake.settings.model_dump(),
            "upkeep": {"tables": {".".join(identifier): {"delete_rows_after": age}}},
        }
    )
    metadata = lake.reader().read(identifier)
    policy = retention_policy(settings, identifier, metadata)
    plan = plan_row_age(".".join(identifier), metadata, policy, now)
    deleted = delete_old_rows(lake, lake.ref(identifier), plan)
    lake.sql(f"REFRESH TABLE {'.'.join(identifier)}")
    return plan, deleted


def ids(lake, identifier):
    return sorted(row.id for row in lake.sql(f"SELECT id FROM {'.'.join(identifier)}").collect())


def test_whole_days_go_and_no_file_is_written(embedded_lake, table):
    name = fill(embedded_lake, table, "days(at)")
    plan, deleted = run(embedded_lake, name)
    # Two days before half past five: of the 16th nothing goes, though a row of it is old enough.
    assert (plan.before, plan.column) == (datetime(2026, 11, 16, tzinfo=timezone.utc), "at")
    assert (deleted.rows, deleted.files) == (2, 2)
    assert ids(embedded_lake, name) == [0, 16, 17, 18]
    metadata = embedded_lake.reader().read(name)
    assert metadata.current_summary["operation"] == "delete"
    assert "added-data-files" not in metadata.current_summary
    assert "added-delete-files" not in metadata.current_summary
    location = metadata.metadata_location
    assert run(embedded_lake, name)[1].rows == 0
    assert embedded_lake.reader().read(name).metadata_location == location


def test_hours_and_a_column_that_is_not_partitioned(embedded_lake, table):
    name = fill(embedded_lake, table, "hours(at)")
    _, deleted = run(embedded_lake, name, {"column": "at", "after": "2d"})
    assert (deleted.rows, ids(embedded_lake, name)) == (3, [0, 17, 18])
    plan, deleted = run(embedded_lake, name, {"column": "id", "after": "2d"})
    assert (plan.skipped, deleted.rows) == ("its column id is no time", 0)


def summary_of(lake, name):
    return lake.reader().read(name).current_summary


def test_rows_of_a_table_without_partitions_go_and_whole_files_where_it_can(embedded_lake, table):
    lake = embedded_lake
    lake.sql(f"CREATE TABLE {table} (id INT, at TIMESTAMP) USING iceberg")
    name = tuple(table.split("."))
    for days in ((14, 15), (18,)):
        rows = ", ".join(f"({day}, TIMESTAMP '2026-11-{day} 04:00:00+00:00')" for day in days)
        lake.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM VALUES {rows} AS t(id, at)")
    age = {"column": "at", "after": "2d"}
    _, deleted = run(lake, name, age)
    assert (deleted.rows, deleted.files, ids(lake, name)) == (2, 1, [18])
    assert "added-data-files" not in summary_of(lake, name)
    rows = (
        "(15, TIMESTAMP '2026-11-15 04:00:00+00:00'), (17, TIMESTAMP '2026-11-17 04:00:00+00:00')"
    )
    lake.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM VALUES {rows} AS t(id, at)")
    _, deleted = run(lake, name, age)
    assert (deleted.rows, ids(lake, name)) == (1, [17, 18])
    assert summary_of(lake, name)["added-data-files"] == "1"


def test_a_file_of_another_spec_keeps_no_old_day(embedded_lake, table):
    """As with records of far-off days, which share files that have no partition."""
    lake = embedded_lake
    lake.sql(f"CREATE TABLE {table} (id INT, at TIMESTAMP) USING iceberg")
    lake.sql(
        f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM VALUES "
        "(1, TIMESTAMP '1999-01-01 00:00:00+00:00'), (2, TIMESTAMP '2099-01-01 00:00:00+00:00'), "
        "(3, NULL) AS t(id, at)"
    )
    lake.sql(f"ALTER TABLE {table} ADD PARTITION FIELD days(at)")
    days = ", ".join(f"({day}, TIMESTAMP '2026-11-{day} 04:00:00+00:00')" for day in range(14, 19))
    lake.sql(f"INSERT INTO {table} VALUES {days}")
    name = tuple(table.split("."))
    plan, deleted = run(lake, name)
    assert (plan.column, plan.is_mixed, plan.other_specs) == ("at", True, (0,))
    assert (deleted.rows, ids(lake, name)) == (3, [2, 3, 16, 17, 18])
    # The days went with their files, in a commit that wrote nothing.
    summary = summary_of(lake, name)
    assert (summary["deleted-data-files"], summary.get("added-data-files")) == ("2", None)
    assert run(lake, name)[1].rows == 0


def by_maintenance(lake, _):
    (report,) = lake.maintain(TRACES)
    assert report.error is None
    return report.deleted_rows


def by_the_service(lake, directory):
    assert Upkeep(lake, UpkeepSpec(Bench(lake, directory).buffer)).run().failures == {}
    return 24


@pytest.mark.parametrize("delete", [by_maintenance, by_the_service])
def test_a_policy_deletes_old_rows_and_says_so_before(embedded_lake, tmp_path, delete):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        written, said = write(lake, [0]), []
        with_policies(lake, **{TRACES: {"delete_rows_after": "2d", "compact": False}})

        def note(text):
            if "deleting" in text:
                said.append((text, names_by(lake, "PyIceberg")))

        lake.progress = note
        assert delete(lake, tmp_path) == sum(written.values()) == 24
        assert names_by(lake, "PyIceberg") == {}
        ((text, before),) = said
        assert text.startswith("otel.traces: deleting 24 rows with timestamp before ")
        assert text.endswith(": older than 2d, by whole days")
        assert before == written
