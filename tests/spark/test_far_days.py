"""Records of many days in one file: Spark reads it by time, and maintenance puts them into days."""

from collections import Counter

import pytest

import neve
from neve.config import Settings
from neve.lake.far_days import MOST_DAYS
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings
from tests.unit.consolidate.test_far_days import files, send, wanted

DAYS = range(20)
ONE_DAY = "SELECT body FROM otel.logs WHERE timestamp >= '1999-03-04' AND timestamp < '1999-03-05'"


@pytest.fixture
def bench(embedded_lake, tmp_path):
    settings = sqlite_settings(tmp_path).model_dump(include={"catalog", "spark"})
    with neve.open(Settings.model_validate({**settings, "upkeep": {"min_small_files": 2}})) as lake:
        yield Bench(lake, tmp_path)


def bodies(lake, query="SELECT body FROM otel.logs"):
    return Counter(lake.query(query)["body"].to_pylist())


def shared(bench):
    return [file for file in files(bench) if not len(file.partition)]


def test_spark_reads_far_days_and_maintenance_rewrites_them_into_days(bench):
    for name in "ab":
        send(bench, DAYS, name)
        bench.run()
    assert len(shared(bench)) == 2
    assert bodies(bench.lake, ONE_DAY) == Counter(["a 3", "b 3"])
    (plan, *_) = bench.lake.plan_maintenance("otel.logs")
    effects = [action.effect for action in plan.actions]
    assert f"rows of 2 files go into at most {2 * MOST_DAYS} days" in effects
    (report,) = bench.lake.maintain(plans=[plan])
    assert (report.error, report.left) == (None, [])
    assert shared(bench) == []
    assert {len(file.partition) for file in files(bench)} == {1}
    assert bodies(bench.lake, ONE_DAY) == Counter(["a 3", "b 3"])
    assert bodies(bench.lake) == wanted(DAYS, "a") + wanted(DAYS, "b")


def test_a_rewrite_makes_files_for_so_many_days_and_the_rest_shares_one_again(bench):
    days = range(60)
    for name in "ab":
        send(bench, days, name)
        bench.run()
    before = {file.file_path for file in files(bench)}
    (plan, *_) = bench.lake.plan_maintenance("otel.logs")
    (group,) = [action.group for action in plan.actions if action.group and action.group.is_shared]
    (report,) = bench.lake.maintain(plans=[plan])
    assert (report.error, report.left) == (None, [])
    new = [file for file in files(bench) if file.file_path not in before]
    far = [file for file in new if file.partition and file.partition[0] < 10_651 + 60 - MOST_DAYS]
    assert (len(far), group.most_days) == (2 * MOST_DAYS, 2 * MOST_DAYS)
    (rest,) = shared(bench)
    assert rest.record_count == 2 * (60 - MOST_DAYS) - 2 * 2 * MOST_DAYS
    assert bodies(bench.lake, ONE_DAY) == Counter(["a 3", "b 3"])
    assert bodies(bench.lake) == wanted(days, "a") + wanted(days, "b")
