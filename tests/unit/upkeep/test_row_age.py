"""Which rows are too old, by metadata alone."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from neve.config import Settings
from neve.lake.metadata_json import MetadataJson
from neve.upkeep.retention_policy import retention_policy
from neve.upkeep.row_age import old_partitions, plan_row_age

UTC = timezone.utc
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 11, 18, 5, 30, tzinfo=UTC)
NAME = ("ns", "t")


def metadata_of(kind, unit):
    document = {
        "location": "/t",
        "current-schema-id": 0,
        "schemas": [{"schema-id": 0, "fields": [{"id": 1, "name": "at", "type": kind}]}],
        "partition-specs": [{"spec-id": 0, "fields": [{"source-id": 1, "transform": unit}]}],
    }
    return MetadataJson("x", document)


def plan(kind, unit):
    metadata = metadata_of(kind, unit)
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


@pytest.mark.parametrize(
    ("kind", "unit", "first_kept"),
    [
        ("timestamptz", "hour", (datetime(2026, 11, 16, 5, tzinfo=UTC) - EPOCH).days * 24 + 5),
        ("timestamptz", "day", (datetime(2026, 11, 16, tzinfo=UTC) - EPOCH).days),
        ("date", "month", 12 * (2026 - 1970) + 10),
        ("timestamp", "year", 2026 - 1970),
    ],
)
def test_partitions_before_the_boundary_are_old(kind, unit, first_kept):
    partitions = [(0, (first_kept - 1,)), (0, (first_kept,)), (0, (None,)), (7, (1,))]
    assert old_partitions(plan(kind, unit), metadata_of(kind, unit), partitions) == partitions[:1]
