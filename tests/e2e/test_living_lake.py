"""Receiver, consolidation, merges, upkeep, a follower and readers at once, killed at random."""

from __future__ import annotations

import random

import pytest

import neve
from tests.support.lakes import sqlite_settings
from tests.support.living_lake import Activities, LivingLake
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
    print("seed", SEED)
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
    assert "Traceback" not in living.logs()
