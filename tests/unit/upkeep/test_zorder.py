"""Z order: which rows the procedure is called for, and what is not put in Z order."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

import neve
from neve.config import Settings
from neve.lake.metadata_json import MetadataJson
from neve.upkeep.compaction import FileGroup
from neve.upkeep.plan import Step, plan_maintenance
from neve.upkeep.zorder import closed_day
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings
from tests.unit.consolidate.test_far_days import send

DAY = 20_774
END = (DAY + 1) * 86_400.0
UTC = datetime(1970, 1, 1, tzinfo=timezone.utc)
RANGE = (
    "`at` >= TIMESTAMP '2026-11-17 00:00:00+00:00' AND `at` < TIMESTAMP '2026-11-18 00:00:00+00:00'"
)


def metadata_of(*specs, kind="timestamptz"):
    fields = [{"id": 1, "name": "at", "type": kind}, {"id": 2, "name": "id", "type": "long"}]
    sources = {"day": 1, "hour": 1}
    document = {
        "location": "/t",
        "current-schema-id": 0,
        "schemas": [{"schema-id": 0, "fields": fields}],
        "partition-specs": [
            {
                "spec-id": number,
                "fields": [{"source-id": sources.get(unit, 2), "transform": unit} for unit in spec],
            }
            for number, spec in enumerate(specs)
        ],
    }
    return MetadataJson("x", document)


def day_of(metadata, partition, settled=END):
    return closed_day(metadata, FileGroup(partition, "", ("a", "b"), 1, 1, 0, 1), settled)


def test_a_group_is_bounded_by_the_day_of_its_own_partition():
    assert (UTC + timedelta(days=DAY)).day == 17
    metadata = metadata_of(["day"], ["hour"], ["bucket[4]"], ["bucket[4]", "day"], [])
    assert day_of(metadata, (0, (DAY,))) == RANGE
    assert day_of(metadata, (1, (DAY * 24 + 5,))) == RANGE
    assert day_of(metadata, (3, (1, DAY))) == RANGE
    # A bucket is no day of 1970, and files of far-off days have no value at all.
    assert day_of(metadata, (2, (3,))) is None
    assert day_of(metadata, (4, ())) is None
    assert day_of(metadata, (0, (None,))) is None
    assert day_of(metadata, (0, (-10_000_000,))) is None


def test_a_day_that_is_not_over_is_left_alone():
    assert day_of(metadata_of(["day"]), (0, (DAY,)), END - 1) is None
    assert day_of(metadata_of(["hour"]), (0, (DAY * 24,)), END - 1) is None


def test_a_column_without_a_zone_is_compared_as_it_is():
    where = day_of(metadata_of(["day"], kind="timestamp"), (0, (DAY,)))
    assert where.startswith("`at` >= TIMESTAMP_NTZ '2026-11-17 00:00:00' AND")


@pytest.fixture
def bench(tmp_path):
    settings = sqlite_settings(tmp_path).model_dump(include={"catalog", "spark"})
    upkeep = {"min_small_files": 2, "tables": {"otel.logs": {"zorder": ["service_name"]}}}
    with neve.open(Settings.model_validate({**settings, "upkeep": upkeep})) as lake:
        yield Bench(lake, tmp_path)


def test_files_of_far_off_days_go_into_their_days_first(bench):
    for name in "ab":
        send(bench, range(20), name)
        bench.run()
    (plan,) = plan_maintenance(bench.lake, ["otel.logs"])
    assert (plan.error, [action.step for action in plan.actions]) == (None, [Step.SORT])
    assert plan.actions[0].group.is_shared
    (note,) = plan.notes
    assert note.startswith("no day is put in Z order: 2 small files are of no day")


def test_days_are_put_in_z_order_beside_a_file_of_far_off_days(bench):
    send(bench, range(20), "a")
    bench.run()
    send(bench, [19], "b")
    bench.run()
    (plan,) = plan_maintenance(bench.lake, ["otel.logs"])
    ((action,),) = [plan.actions]
    assert (action.step, plan.notes) == (Step.ZORDER, ())
    assert "1999-03-20 00:00:00+00:00" in action.where
