"""Which rows are too old, by metadata alone."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from neve.config import Settings
from neve.lake.metadata_json import MetadataJson
from neve.upkeep.retention_policy import retention_policy
from neve.upkeep.row_age import plan_row_age

NOW = datetime(2026, 11, 18, 5, 30, tzinfo=timezone.utc)
NAME = ("ns", "t")


def plan(kind, unit):
    document = {
        "location": "/t",
        "current-schema-id": 0,
        "schemas": [{"schema-id": 0, "fields": [{"id": 1, "name": "at", "type": kind}]}],
        "partition-specs": [{"spec-id": 0, "fields": [{"source-id": 1, "transform": unit}]}],
    }
    metadata = MetadataJson("x", document)
    settings = Settings.model_validate(
        {"upkeep": {"tables": {"ns.t": {"delete_rows_after": "2d"}}}}
    )
    policy = retention_policy(settings, NAME, metadata)
    return plan_row_age("ns.t", metadata, policy, NOW.timestamp())


@pytest.mark.parametrize(
    ("kind", "unit", "before"),
    [
        ("timestamptz", "hour", "2026-11-16T05:00"),
        ("timestamptz", "day", "2026-11-16T00:00"),
        ("timestamp", "hour", "2026-11-15T17:00"),
        ("timestamp_ns", "day", "2026-11-15T00:00"),
        ("date", "day", "2026-11-15T00:00"),
    ],
)
def test_a_time_without_a_zone_is_old_when_it_is_so_in_every_zone(kind, unit, before):
    """A wall clock in UTC-12 shows a time that in UTC was twelve hours ago."""
    assert plan(kind, unit).before == datetime.fromisoformat(f"{before}+00:00")
    zone = "+00:00" if kind == "timestamptz" else "-12:00"
    assert NOW - datetime.fromisoformat(f"{before}{zone}") >= timedelta(days=2)
