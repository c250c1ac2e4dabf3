"""Receiver, consolidation, merges, upkeep, a follower and readers at once, killed at random.

`make soak` runs the embedded form for ten minutes and the others for three. All run as long as
`NEVE_SOAK_SECONDS` says, and `NEVE_SOAK_SEED` chooses the moments of the kills:

    NEVE_SOAK_SECONDS=600 .venv/bin/python -m pytest -m soak tests/e2e/test_living_lake.py
"""

from __future__ import annotations

import os
import random
import sys
from contextlib import ExitStack, contextmanager, suppress

import pytest

import neve
from neve.config import Settings
from tests.support.lakes import postgres_settings, rest_settings, sqlite_settings
from tests.support.leftovers import age_files, unreferenced_files
from tests.support.living_lake import EAGER_UPKEEP, Activities, LivingLake, Place
from tests.support.servers import (
    running_postgres,
    running_rest_catalog,
    running_s3,
    running_spark_cluster,
)
from tests.support.wait import until

# Both can be chosen for the long runs: another seed kills at other moments.
SEED = int(os.environ.get("NEVE_SOAK_SEED", "20261118"))
SOAK_SECONDS = os.environ.get("NEVE_SOAK_SECONDS")
# From the last change to a table that has it, Spark's start after a kill included.
ARRIVAL_SECONDS = 120
# From the last change until upkeep has done all its kinds of work.
UPKEEP_SECONDS = 60
# A long run kills the service once in so many seconds, on average.
SECONDS_A_KILL = 40


@contextmanager
def embedded(directory):
    yield Place(sqlite_settings(directory))


@contextmanager
def on_postgres(directory):
    with running_s3(directory) as s3, running_postgres(directory) as database:
        yield Place(postgres_settings(database, s3), buckets=directory / "s3")


@contextmanager
def on_rest(directory):
    with running_s3(directory) as s3, running_rest_catalog(directory, s3) as catalog:
        yield Place(
            rest_settings(catalog.uri, s3),
            buckets=directory / "s3",
            buffer=f"s3://{s3.bucket}/buffer",
        )


@contextmanager
def on_cluster(directory):
    """A REST catalog, S3, and a service whose tasks run on a standalone cluster."""
    with ExitStack() as stack:
        place = stack.enter_context(on_rest(directory))
        master = stack.enter_context(running_spark_cluster(directory))
        conf = {
            "spark.driver.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "640m",
            "spark.sql.shuffle.partitions": "2",
        }
        yield Place(place.settings, place.buckets, place.buffer, {"master": master, "conf": conf})


@pytest.fixture
def living(request, embedded_lake, tmp_path):
    with request.param(tmp_path) as place, neve.open(place.settings) as lake:
        yield LivingLake(lake, tmp_path, place)


def soak(place, seconds):
    """A long run; `NEVE_SOAK_SECONDS` makes all of them shorter or longer."""
    seconds = int(SOAK_SECONDS or seconds)
    kills = max(1, seconds // SECONDS_A_KILL)
    name = f"{place.__name__.removeprefix('on_')}-{seconds}s"
    return pytest.param(place, seconds, kills, marks=pytest.mark.soak, id=name)


@pytest.mark.parametrize(
    ("living", "seconds", "kills"),
    [
        pytest.param(embedded, 6, 1, id="short"),
        soak(embedded, 600),
        soak(on_postgres, 180),
        soak(on_rest, 180),
        soak(on_cluster, 180),
    ],
    indirect=["living"],
)
def test_everything_at_once_loses_and_doubles_nothing(living, seconds, kills):
    sys.stdout.write(f"NEVE_SOAK_SEED={SEED}\n")
    pauses = random.Random(SEED)
    activities = Activities()
    living.make_past()
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
        check_that_upkeep_worked(living)
        assert living.service.stop(deadline_seconds=60) == 0, living.service.tail()
    living.follow()
    sys.stdout.write(
        f"{len(living.acknowledged)} requests, {living.waves} waves, {living.reads} reads, "
        f"{living.starts} starts, {living.left} files left by kills\n"
    )
    wanted = {key: row for (key,), row in living.mirrored.wanted().items()}
    assert living.copied() == wanted
    assert living.waves > 3
    check_that_nothing_is_left_over(living)
    assert "Traceback" not in living.logs()


def check_that_upkeep_worked(living):
    """The service has done all that upkeep is for, and removed nothing that is young."""
    with suppress(AssertionError):
        until(lambda: not living.debts(), seconds=UPKEEP_SECONDS)
    debts = living.debts()
    assert not debts, "; ".join(debts)
    assert [path for path in living.young if not path.exists()] == []


def check_that_nothing_is_left_over(living):
    """Files that no version names are gone a day later, and every table is as it was."""
    wanted = living.mirrored.wanted()
    age_files(living.lake.catalog(), living.place.path)
    settings = Settings.model_validate(
        {**living.lake.settings.model_dump(exclude_none=True), "upkeep": EAGER_UPKEEP}
    )
    with neve.open(settings) as lake:
        reports = lake.maintain()
    assert [report.error for report in reports if report.error] == []
    assert unreferenced_files(living.lake.catalog(), living.place.path) == set()
    assert living.mirrored.found() == wanted
    assert living.log_counts() == living.acknowledged_counts()
