"""Receiver, consolidation, merges, upkeep, a follower and readers at once, killed at random."""

from __future__ import annotations

import random
import sys

import pytest

import neve
from neve.config import Settings
from tests.support.lakes import sqlite_settings
from tests.support.living_lake import EAGER_UPKEEP, Activities, LivingLake
from tests.support.wait import until

SEED = 20261118
# From the last change to a table that has it, Spark's start after a kill included.
ARRIVAL_SECONDS = 120


@pytest.fixture
def living(embedded_lake, tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield LivingLake(lake, tmp_path)


@pytest.mark.parametrize(
    ("seconds", "kills"), [(10, 1), pytest.param(600, 15, marks=pytest.mark.soak)]
)
def test_everything_at_once_loses_and_doubles_nothing(living, seconds, kills):
    sys.stdout.write(f"seed {SEED}\n")
    pauses = random.Random(SEED)
    activities = Activities()
    with living.serving():
        try:
            for step, pause_seconds in (
                (living.send, 0.05),
                (living.change, 0.5),
                (living.read_mirror, 0.2),
                (living.read_logs, 0.2),
                (living.follow, 1.0),
            ):
                activities.repeat(step, pause_seconds)
            for _ in range(kills):
                activities.stop.wait(pauses.uniform(0.2, 1.8) * seconds / kills)
                living.kill_and_start()
            activities.stop.wait(seconds / kills)
        finally:
            activities.end()
        count = len(living.acknowledged)
        until(lambda: living.send() or len(living.acknowledged) > count, seconds=30)
        living.service.wait_until(
            lambda: living.log_counts() == living.acknowledged_counts(), ARRIVAL_SECONDS
        )
        living.service.wait_until(
            lambda: living.mirrored.found() == living.mirrored.wanted(), ARRIVAL_SECONDS
        )
        assert living.service.stop(deadline_seconds=60) == 0, living.service.tail()
    living.follow()
    wanted = {key: row for (key,), row in living.mirrored.wanted().items()}
    assert living.copied() == wanted
    assert living.waves > 3
    check_that_nothing_is_left_over(living)
    assert "Traceback" not in living.logs()


def check_that_nothing_is_left_over(living):
    """Files that no version names are gone a day later, and every table is as it was."""
    wanted = living.mirrored.wanted()
    living.age_files()
    upkeep = {**EAGER_UPKEEP, "orphan_age": "1d"}
    settings = Settings.model_validate(
        {**living.lake.settings.model_dump(exclude_none=True), "upkeep": upkeep}
    )
    with neve.open(settings) as lake:
        reports = lake.maintain()
    assert [report.error for report in reports if report.error] == []
    assert living.unreferenced() == set()
    assert living.mirrored.found() == wanted
    assert living.log_counts() == living.acknowledged_counts()
