"""A table of an age whose oldest snapshots are expired: what that costs, group by group."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import neve
from neve.lake import manifests
from neve.lake.expiry import SnapshotRemoval, remove_expired
from neve.upkeep.table_places import TablePlaces
from tests.support import aged
from tests.support.aged_lake import Age, Cost
from tests.support.appending import Appender

if TYPE_CHECKING:
    from neve.config import Settings
    from neve.lake import Lake

NAME = ("ns", "t")
# Of five minutes, with a commit every 2.6 s: as often, upkeep expires.
SNAPSHOTS = 115
_RETAINED = 20


class ExpiringTable:
    """A table and its oldest snapshots, each of a real append."""

    def __init__(self, lake: Lake, oldest: list[int], group: int) -> None:
        self._lake = lake
        self._oldest = oldest
        self._group = group
        # As the service keeps it.
        self._places = TablePlaces(lake)

    def expire(self) -> Cost:
        """Expire the next group, as the next maintenance would, and delete its files."""
        group = tuple(self._oldest[: self._group])
        del self._oldest[: self._group]
        assert len(group) == self._group
        uuid, ref = self._lake.reader().read(NAME).uuid, self._lake.ref(NAME)
        began, processor = time.perf_counter(), time.process_time()
        removed = remove_expired(
            self._lake,
            ref,
            uuid,
            lambda _: SnapshotRemoval(group),
            lambda metadata, files: self._places.why_shared(ref, metadata, files, anew=True),
        )
        cost = Cost(time.process_time() - processor, time.perf_counter() - began, 0)
        assert (removed.snapshots, removed.left) == (self._group, "")
        return cost


@contextmanager
def expiring_table(
    age: Age,
    settings: Settings,
    groups: int,
    group: int = SNAPSHOTS,
    measured: Settings | None = None,
) -> Iterator[ExpiringTable]:
    """Make a table of an age; the snapshots that may expire come behind its files.

    Args:
        measured: with which it is expired, such as through a proxy; None: as it is made.
    """
    with neve.open(settings) as lake:
        appender = Appender(lake)
        appender.append(0)
        if age.files:
            aged.add_files(aged.staging(lake, "ns.t"), age.files)
            appender.table.refresh()
        for number in range(groups * group + _RETAINED):
            appender.append(number)
        oldest = list(lake.reader().read(NAME).snapshots)[: groups * group]
        if age.snapshots:
            aged.add_snapshots(aged.staging(lake, "ns.t"), age.snapshots)
    with neve.open(measured or settings) as lake:
        manifests._lists_kept.clear()
        yield ExpiringTable(lake, oldest, group)
