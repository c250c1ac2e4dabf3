"""A lake that looks a month old: everything still gives the right rows, and costs little.

Its versions were kept, and its files never joined: each hour of thirty days has small files of its
own, each day has a version, and logs and a mirror have the snapshots of an hour of commits. The
files are real; the times of the commits are moved into the past. `benchmarks/age.py` and
`tests/integration/test_age.py` have a million files, by name only.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest

import neve
from neve.config import Settings
from neve.lake.appends import AppendTable
from neve.lake.commit_loop import CommitCounters, RetryPolicy
from neve.lake.data_files import write_data_files
from neve.lake.kept_moments import DAILY
from neve.merge.strategy import Strategy
from neve.signals import Signal
from neve.telemetry.schemas import SCHEMAS
from tests.support import aged
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings
from tests.support.leftovers import age_files, unreferenced_files
from tests.support.merging import Mirrored, event
from tests.support.spread_times import spread

pytestmark = pytest.mark.soak

LOGS = "otel.logs"
DAY_SECONDS = 86_400
DAYS, FILES_AN_HOUR = 30, 4
# Of commits every 2.5 s: see `tests/support/aged_lake.py`.
SNAPSHOTS_AN_HOUR = 1455
# An old lake may take so many times as long as a new one; some of it is the machine's.
MOST_TIMES = 3.0
NOISE_SECONDS = 0.5
MOST_MAINTENANCE_SECONDS = 300


@pytest.fixture
def bench(embedded_lake, tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield Bench(lake, tmp_path)


def records(at, text):
    row = {"timestamp": at, "received_at": at, "body": text, "service_name": "shop"}
    return pa.Table.from_pylist([row], SCHEMAS["logs"])


def write_month(lake, today):
    """Append the files of each day in one commit, and put the commits a day apart."""
    table = AppendTable(lake.profile, lake.catalog().load_table(LOGS))
    written = Counter()
    for day in range(DAYS, 0, -1):
        files = []
        for number in range(24 * FILES_AN_HOUR):
            at = today - timedelta(days=day) + timedelta(hours=1) * (number / FILES_AN_HOUR)
            text = f"{at:%F %T}"
            files += write_data_files(table.metadata, table.io, records(at, text))
            written[text] += 1
        table.append(files, f"day {day}", policy=RetryPolicy(), counters=CommitCounters())
    spread(lake, ("otel", "logs"), DAY_SECONDS, time.time() - 7200)
    left_alone = Settings.model_validate({"upkeep": {"tables": {"*": {"compact": False}}}}).upkeep
    (report,) = maintain_as(lake, left_alone, LOGS)
    assert (report.error, report.rewritten_files) == (None, 0)
    return written


def maintain_as(lake, upkeep, *tables):
    """Maintain tables by another section of the configuration."""
    present = lake.settings
    lake.settings = present.model_copy(update={"upkeep": upkeep})
    try:
        return lake.maintain(*tables)
    finally:
        lake.settings = present


def seconds(work):
    """Return how long something takes, and what it returns."""
    began = time.monotonic()
    result = work()
    return time.monotonic() - began, result


def consolidate(bench, name):
    bench.send(Signal.LOGS, name)
    took, report = seconds(bench.run)
    assert report.trouble is None
    return took


def direct_write(lake, name):
    with lake.writer() as writer:
        rows = records(datetime.now(timezone.utc), name)
        took, result = seconds(lambda: writer.write_and_commit("logs", None, rows))
        assert result.committed
        return took


def merge(mirrored, wave):
    mirrored.append(*(event("U", 1000 * wave + key, key, f"{wave}") for key in range(20)))
    took, _ = seconds(lambda: mirrored.merge(strategy=Strategy.INDEX))
    mirrored.check()
    return took


def costs(bench, mirrored, round_number):
    """Return what each kind of write takes: the shortest of three, after one to get warm."""
    rounds = [
        (
            consolidate(bench, f"batch {round_number} {number}"),
            direct_write(bench.lake, f"direct {round_number} {number}"),
            merge(mirrored, 10 * round_number + number),
        )
        for number in range(4)
    ]
    return [min(kind[1:]) for kind in zip(*rounds, strict=True)]


def written_by(round_number):
    batches = (f"batch {round_number} {number} {row}" for number in range(4) for row in range(2))
    return Counter([*batches, *(f"direct {round_number} {number}" for number in range(4))])


def test_an_old_lake_works_as_a_new_one_and_upkeep_makes_it_small(bench):
    lake, mirrored = bench.lake, Mirrored(bench.lake)
    young = costs(bench, mirrored, 1)
    today = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
    wanted = write_month(lake, today) + written_by(1)
    for table in (LOGS, mirrored.mirror):
        aged.add_snapshots(aged.staging(lake, table), SNAPSHOTS_AN_HOUR)

    old = costs(bench, mirrored, 2)
    check_costs(old, young)
    wanted += written_by(2)
    assert bench.names("logs") == wanted

    took, reports = seconds(lake.maintain)
    assert [(report.error, report.left) for report in reports if report.error or report.left] == []
    assert bench.names("logs") == wanted
    mirrored.check()
    check_month(lake, today)
    assert took < MOST_MAINTENANCE_SECONDS

    kept = costs(bench, mirrored, 3)
    check_costs(kept, young)
    sys.stdout.write(f"young {young}, old {old}, maintained {kept}, maintenance {took:.0f} s\n")
    assert bench.names("logs") == wanted + written_by(3)
    # Two days: by default files that nobody needs stay for three.
    age_files(lake.catalog())
    maintain_as(lake, Settings.model_validate({"upkeep": {"orphan_age": "1d"}}).upkeep)
    assert unreferenced_files(lake.catalog()) == set()
    assert bench.names("logs") == wanted + written_by(3)


def check_costs(old, young):
    for before, after in zip(young, old, strict=True):
        assert after <= MOST_TIMES * before + NOISE_SECONDS, (young, old)


def check_month(lake, today):
    """Each day has one file and a version; besides, there are the snapshots of an hour."""
    table = lake.catalog().load_table(LOGS)
    days = Counter(task.file.partition[0] for task in table.scan().plan_files())
    epoch_day = int(today.timestamp()) // DAY_SECONDS
    assert {days[epoch_day - day] for day in range(1, DAYS + 1)} == {1}
    tags = {f"{today - timedelta(days=day):{DAILY}}" for day in range(1, DAYS - 1)}
    assert tags <= set(table.metadata.refs)
    assert len(table.metadata.snapshots) < SNAPSHOTS_AN_HOUR + 150
    (health,) = lake.health(LOGS)
    # Today's hour is open, and left alone: a file for each of the sixteen commits so far.
    assert health.files == DAYS + 16
    assert health.score > 90
