"""Which rows are too old, by metadata alone."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from math import inf

import pytest

from neve.config import Settings
from neve.lake.horizons import KEYS
from neve.lake.metadata_json import MetadataJson
from neve.upkeep.layout import Layout
from neve.upkeep.retention_policy import retention_policy
from neve.upkeep.row_age import has_old_rows, old_partitions, plan_row_age

UTC = timezone.utc
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 11, 18, 5, 30, tzinfo=UTC)
NAME = ("ns", "t")


def metadata_of(kind, *units, **properties):
    """Make a table of several specs; None: one without fields."""
    specs = [
        {"spec-id": number, "fields": [{"source-id": 1, "transform": unit}] if unit else []}
        for number, unit in enumerate(units)
    ]
    columns = [("at", kind), ("id", "long"), ("done", "timestamptz")]
    fields = [{"id": 1 + n, "name": name, "type": type_} for n, (name, type_) in enumerate(columns)]
    document = {
        "location": "/t",
        "current-schema-id": 0,
        "schemas": [{"schema-id": 0, "fields": fields}],
        "partition-specs": specs,
        "properties": properties,
    }
    return MetadataJson("x", document)


def plan_of(metadata, age="2d"):
    settings = Settings.model_validate({"upkeep": {"tables": {"ns.t": {"delete_rows_after": age}}}})
    policy = retention_policy(settings, NAME, metadata)
    return plan_row_age("ns.t", metadata, policy, NOW.timestamp())


def plan(kind, unit):
    return plan_of(metadata_of(kind, unit))


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


@pytest.mark.parametrize(
    ("units", "before", "others"),
    [
        (["hour", None], "2026-11-16T00:00", (1,)),
        (["month", None], "2026-11-01T00:00", (1,)),
        (["hour", "day"], "2026-11-16T00:00", ()),
    ],
)
def test_where_a_spec_is_not_by_the_time_rows_go_once_a_day(units, before, others):
    """A file with records of far-off days must not keep all old rows of its table."""
    found = plan_of(metadata_of("timestamptz", *units))
    assert found.before == datetime.fromisoformat(f"{before}+00:00")
    assert (found.other_specs, found.is_mixed) == (others, bool(others))
    assert ("are rewritten" in found.effect) == bool(others)
    assert ("nothing is rewritten" in found.effect) != bool(others)


def test_a_table_without_partitions_needs_a_time_by_name():
    metadata = metadata_of("timestamptz", None)
    found = plan_of(metadata, {"column": "done", "after": "2d"})
    assert (found.column, found.other_specs, found.is_mixed) == ("done", (0,), False)
    assert found.before == datetime(2026, 11, 16, tzinfo=UTC)
    assert "has to name a time" in plan_of(metadata).skipped
    assert plan_of(metadata, {"column": "dome", "after": "2d"}).skipped == "it has no column dome"
    assert plan_of(metadata, {"column": "id", "after": "2d"}).skipped == "its column id is no time"


def test_rows_of_mirrors_are_never_deleted_by_age():
    metadata = metadata_of("timestamptz", "day", **{KEYS: '["id"]'})
    assert plan_of(metadata).skipped == "rows of a mirror follow from its changelog"


@pytest.mark.parametrize(("earliest", "is_old"), [(-1, True), (0, False), (-inf, True)])
def test_rows_may_be_old_as_far_as_files_tell(earliest, is_old):
    metadata = metadata_of("timestamptz", None)
    found = plan_of(metadata, {"column": "at", "after": "2d"})
    boundary = found.before.timestamp() * 1_000_000
    assert has_old_rows(found, metadata, Layout(earliest=boundary + earliest)) == is_old
    assert not has_old_rows(found, metadata, Layout())
