"""A table with a history whose versions expire, its policy, and a clock."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import urlsplit

from neve.config import Settings
from neve.lake.commit_loop import RetryPolicy
from neve.upkeep.retention import carry_out_retention, plan_retention
from neve.upkeep.retention_policy import retention_policy
from tests.support.appending import Appender
from tests.support.spread_times import spread

NAME = ("ns", "t")
HOUR, DAY = 3600.0, 86_400.0
# 2026-11-03, half past five.
NOW = datetime(2026, 11, 3, 5, 30, tzinfo=timezone.utc).timestamp()


def settings_with(lake, **upkeep):
    upkeep = {"tables": {"ns.t": {"expire": True}}, "retain_min": 1, **upkeep}
    return Settings.model_validate({**lake.settings.model_dump(), "upkeep": upkeep})


class Bench:
    """One table, its policy, and a clock."""

    def __init__(self, lake, now=NOW, **upkeep) -> None:
        self.lake, self.now = lake, now
        self.settings = settings_with(lake, **upkeep)

    @property
    def metadata(self):
        return self.lake.reader().read(NAME)

    @property
    def policy(self):
        return retention_policy(self.settings, NAME, self.metadata)

    def plan(self, needed=None):
        return plan_retention("ns.t", self.metadata, self.policy, self.now, needed)

    def run(self, plan=None):
        plan = plan or self.plan()
        retry = RetryPolicy(attempts=3, first_seconds=0.001)
        return carry_out_retention(
            self.lake, self.lake.ref(NAME), plan, self.policy, self.now, retry=retry
        )


def fill(lake, commits, apart_seconds=HOUR, end=NOW - 60):
    appender = Appender(lake)
    for number in range(commits):
        appender.append(number)
    return appender, spread(lake, NAME, apart_seconds, end)


def files_of(appender):
    """Return the files below a table's location, but for metadata documents."""
    location = Path(urlsplit(appender.load().location()).path)
    return {str(path) for path in location.rglob("*") if path.suffix in (".parquet", ".avro")}


def manifests_of(table, snapshot):
    return [each.manifest_path for each in snapshot.manifests(table.io)]
