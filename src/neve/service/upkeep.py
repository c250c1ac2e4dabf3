"""Upkeep as a part of the service: on a thread of its own, off the path of batches."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from neve.direct.recovery import unconfirmed_writes
from neve.observe.upkeep import UpkeepMetrics
from neve.upkeep.spec import upkeep_spec
from neve.upkeep.upkeep import Upkeep

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.observe.metrics import Registry
    from neve.upkeep.upkeep import UpkeepReport

POLL_SECONDS = 0.5


class TableUpkeep:
    """The upkeep of the tables that consolidation writes: a `run.Part`."""

    # What upkeep cannot do delays nothing and is tried again: the service stays ready. The log and
    # the metrics tell.
    trouble = None

    def __init__(self, lake: Lake, registry: Registry) -> None:
        self.upkeep = Upkeep(
            lake,
            upkeep_spec(lake.settings),
            unconfirmed_writes=lambda: unconfirmed_writes(
                lake.profile, lake.settings.direct.recovery
            ),
        )
        self.metrics = UpkeepMetrics(registry)

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            report = self.upkeep.run_when_due(stop)
            if report is not None:
                self._count(report)
            stop.wait(POLL_SECONDS)

    def finish(self) -> None:
        """Leave the rest for the next start."""

    def _count(self, report: UpkeepReport) -> None:
        self.metrics.expired.inc(report.expired_snapshots)
        self.metrics.abandoned.inc(report.abandoned)
        self.metrics.orphans.inc(report.orphans)
        self.metrics.set_lags(report.followers)
        for table in report.failures:
            self.metrics.failures.labels(table).inc()
