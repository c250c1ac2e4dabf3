"""A table with files that nobody needs, among files that somebody needs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from urllib.parse import urlsplit

from neve.lake.staging import StagingTable
from neve.upkeep.orphans import OrphanSearch
from tests.support.appending import Appender

NAME = ("ns", "t")
DAY = 86_400.0


class Bench:
    """A table with a staged batch, a tag and old files of all kinds that nobody needs."""

    def __init__(self, lake) -> None:
        self.lake = lake
        self.appender = Appender(lake)
        for number in range(5):
            self.appender.append(number)
        table = self.appender.load()
        table.manage_snapshots().create_tag(table.metadata.snapshots[1].snapshot_id, "a").commit()
        self.staged = self.appender.write(77)
        staging = StagingTable(lake.profile, self.appender.load())
        staging.refresh()
        staging.stage(self.staged, {}, "neve-staged-x")
        self.location = Path(urlsplit(table.location()).path)
        self.needed = self.all_files()
        self.age()

    def all_files(self):
        return {str(path) for path in self.location.rglob("*") if path.is_file()}

    def age(self, days=10.0):
        """Make every file old."""
        for path in self.all_files():
            os.utime(path, times=(time.time() - days * DAY,) * 2)

    def leave(self, *names, days=10.0):
        """Leave files that no commit names."""
        paths = []
        for name in names:
            path = self.location / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"left")
            os.utime(path, times=(time.time() - days * DAY,) * 2)
            paths.append(str(path))
        return paths

    def search(self, **arguments):
        return OrphanSearch(self.lake, self.lake.ref(NAME), **arguments)

    def plan(self, **arguments):
        return self.search(**arguments).plan(time.time() - 3 * DAY)


def paths_of(plan):
    return {urlsplit(orphan.path).path for orphan in plan.orphans}
