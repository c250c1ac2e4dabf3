"""Maintenance as a part of the service: now and then, one group of files at a time."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from neve.errors import NeveError
from neve.observe import sentry
from neve.observe.maintenance import MaintenanceMetrics
from neve.service.log import say
from neve.upkeep.health import check_health
from neve.upkeep.maintainer import PART, Maintainer
from neve.upkeep.plan import plan_maintenance

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.observe.metrics import Registry
    from neve.upkeep.maintainer import MaintenanceReport

logger = logging.getLogger(__name__)


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

    def run(self, stop: threading.Event) -> None:
        interval = self._lake.settings.upkeep.interval
        next_look = time.monotonic() + interval
        while not stop.wait(max(0.0, next_look - time.monotonic())):
            next_look = time.monotonic() + interval
            self.maintain(stop)

    def maintain(self, stop: threading.Event) -> None:
        """Plan and carry out once; what fails is logged, counted, and tried again next time."""
        upkeep = self._lake.settings.upkeep
        try:
            plans = plan_maintenance(self._lake, max_bytes=upkeep.max_bytes, is_strict=False)
            maintainer = Maintainer(self._lake, max_seconds=upkeep.max_seconds, stop=stop)
            for report in maintainer.carry_out(plans):
                self._tell(report)
            self.metrics.set_health(check_health(self._lake))
        except NeveError as error:
            logger.warning("tables were not maintained: %s", error)
            sentry.capture(error, PART)
        except Exception as error:
            # A defect, ours or a library's: the next look may get past it, the others go on now.
            logger.exception("tables were not maintained")
            sentry.capture(error, PART)

    def finish(self) -> None:
        """Leave the rest for the next start."""

    def _tell(self, report: MaintenanceReport) -> None:
        metrics, table = self.metrics, report.table
        metrics.rewritten_files.labels(table).inc(report.rewritten_files)
        metrics.new_files.labels(table).inc(report.new_files)
        metrics.rewritten_bytes.labels(table).inc(report.rewritten_bytes)
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
                seconds=report.seconds,
            )
