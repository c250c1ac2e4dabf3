"""Rows that are too old go with whole files, and nothing is rewritten."""

from __future__ import annotations

import uuid
from datetime import datetime, timezone

import pytest

from neve.config import Settings
from neve.upkeep.retention_policy import retention_policy
from neve.upkeep.row_age import delete_old_rows, plan_row_age

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
    assert (plan.skipped, deleted.rows) == ("it is not partitioned by the hour or day of id", 0)
    embedded_lake.sql(f"ALTER TABLE {table} DROP PARTITION FIELD hours(at)")
    assert "not partitioned" in run(embedded_lake, name)[0].skipped
