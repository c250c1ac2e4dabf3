"""Maintenance as a part of the service: now and then, one group of files at a time."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from neve.direct.recovery import unconfirmed_writes
from neve.observe.failures import failure_of
from neve.observe.maintenance import MaintenanceMetrics
from neve.service.log import say
from neve.upkeep.health import check_health
from neve.upkeep.maintainer import PART, Maintainer
from neve.upkeep.plan import plan_maintenance

if TYPE_CHECKING:
    from collections.abc import Callable

    from neve.lake import Lake
    from neve.lake.unconfirmed import UnconfirmedWrite
    from neve.observe.metrics import Registry
    from neve.upkeep.maintainer import MaintenanceReport

logger = logging.getLogger(__name__)

_FIRST_LISTING_SECONDS = 3600.0


class TableMaintenance:
    """Keeps all tables fast: a `run.Part`.

    Begins after the first interval: a service that starts has more urgent things to do.
    """

    # What maintenance cannot do delays nothing and is tried again: the service stays ready. The log
    # and the metrics tell.
    trouble = None

    def __init__(self, lake: Lake, registry: Registry) -> None:
        self._lake = lake
        self.metrics = MaintenanceMetrics(registry)
        # Not at the start: a service that dies again and again would list everything each time.
        first = min(lake.settings.upkeep.orphan_interval, _FIRST_LISTING_SECONDS)
        self._next_listing = time.monotonic() + first

    def run(self, stop: threading.Event) -> None:
        interval = self._lake.settings.upkeep.interval
        next_look = time.monotonic() + interval
        while not stop.wait(max(0.0, next_look - time.monotonic())):
            next_look = time.monotonic() + interval
            self.maintain(stop)

    def maintain(self, stop: threading.Event) -> None:
        """Plan and carry out once, then look how tables are, also if that failed.

        What fails is logged, counted, and tried again next time.
        """
        self._try(lambda: self._carry_out(stop), "tables were not maintained")
        if not self._try(self._look, "the health of tables is not known"):
            self.metrics.clear_health()

    def _carry_out(self, stop: threading.Event) -> None:
        upkeep = self._lake.settings.upkeep
        plans = plan_maintenance(self._lake, max_bytes=upkeep.max_bytes, is_strict=False)
        maintainer = Maintainer(self._lake, max_seconds=upkeep.max_seconds, stop=stop)
        for report in maintainer.carry_out(plans):
            self._tell(report)

    def _look(self) -> None:
        is_due = time.monotonic() >= self._next_listing
        reports = check_health(self._lake, listing=self._unconfirmed if is_due else None)
        if is_due:
            self._next_listing = time.monotonic() + self._lake.settings.upkeep.orphan_interval
        self.metrics.set_health(reports)

    def _unconfirmed(self) -> list[UnconfirmedWrite]:
        return unconfirmed_writes(self._lake.profile, self._lake.settings.direct.recovery)

    def _try(self, do: Callable[[], None], failure: str) -> bool:
        try:
            do()
        except Exception as error:  # noqa: BLE001 - the next look may get past it
            logger.warning("%s: %s", failure, failure_of(error, PART))
        else:
            return True
        self.metrics.failed_runs.inc()
        return False

    def finish(self) -> None:
        """Leave the rest for the next start."""

    def _tell(self, report: MaintenanceReport) -> None:
        metrics, table = self.metrics, report.table
        metrics.rewritten_files.labels(table).inc(report.rewritten_files)
        metrics.new_files.labels(table).inc(report.new_files)
        metrics.rewritten_bytes.labels(table).inc(report.rewritten_bytes)
        metrics.new_bytes.labels(table).inc(report.new_bytes)
        metrics.conflicts.labels(table).inc(report.conflicts)
        metrics.failures.labels(table).inc(report.failed)
        if report.rewritten_files:
            say(
                "maintained",
                f"{table}: {report.rewritten_files:,} files became {report.new_files:,} in "
                f"{report.seconds:.1f} s",
                table=table,
                rewritten_files=report.rewritten_files,
                new_files=report.new_files,
                new_bytes=report.new_bytes,
                writes_per_row=report.writes_per_row,
                seconds=report.seconds,
            )
