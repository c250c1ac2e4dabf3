"""The upkeep of the tables that consolidation writes: now and then, each table on its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from neve.buffer.buffer import open_reader
from neve.errors import NeveError, NotFoundError
from neve.lake.catalog import list_tables, load_table
from neve.lake.followers import FollowerState, list_followers
from neve.lake.staging import StagingTable
from neve.observe import sentry
from neve.publish import ledger
from neve.publish.publisher import Publisher
from neve.publish.rejected_rows import REJECTED_SUFFIX
from neve.telemetry.schemas import SCHEMAS
from neve.upkeep.expiry import discard_abandoned, expire
from neve.upkeep.ledger import compact_ledger

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.identifier import Identifier
    from neve.upkeep.spec import UpkeepSpec

logger = logging.getLogger(__name__)

# Each look loads every table.
LOOK_SECONDS = 300.0
PART = "upkeep"


@dataclass
class UpkeepReport:
    """What a look at the tables came to."""

    expired_snapshots: int = 0
    # Staged batches that lost against another worker's.
    abandoned: int = 0
    # Files of the ledger that were rewritten into few.
    compacted_files: int = 0
    # How far the followers of all tables are behind.
    followers: list[FollowerState] = field(default_factory=list)
    # Why a table could not be looked after, by its name.
    failures: dict[str, str] = field(default_factory=dict)


@dataclass
class Upkeep:
    """Looks after the tables that consolidation writes."""

    lake: Lake
    spec: UpkeepSpec
    clock: Callable[[], float] = time.time
    next_look: float = 0.0

    def __post_init__(self) -> None:
        self.reader = open_reader(self.spec.buffer)

    def run_when_due(self, stop: threading.Event | None = None) -> UpkeepReport | None:
        """Look after the tables if the last look is long enough ago; None when it is not."""
        now = self.clock()
        if now < self.next_look:
            return None
        self.next_look = now + LOOK_SECONDS
        return self.run(stop)

    def run(self, stop: threading.Event | None = None) -> UpkeepReport:
        """Expire what can go, and discard what was abandoned, in every table, until `stop` is set.

        Best effort: a table that fails is named in the report, stops no other, and is looked after
        again at the next look. Nothing here is on the path of a batch.
        """
        report = UpkeepReport()
        for identifier in self._tables(report):
            if stop is not None and stop.is_set():
                break
            name = ".".join(identifier)
            try:
                self._look_after(identifier, report)
            except NeveError as error:
                self._fail(report, name, error, str(error))
            except Exception as error:
                # A defect, ours or a library's: other tables are looked after all the same.
                logger.exception("%s: upkeep failed", name)
                self._fail(report, name, error, f"internal error: {type(error).__name__}")
        if stop is None or not stop.is_set():
            try:
                report.followers = list_followers(self.lake)
            except NeveError as error:
                self._fail(report, "followers", error, str(error))
        return report

    def _look_after(self, identifier: Identifier, report: UpkeepReport) -> None:
        now = self.clock()
        table = load_table(self.lake.profile, self.lake.catalog(), identifier)
        publisher = Publisher(StagingTable(self.lake.profile, table), self.reader)
        report.abandoned += discard_abandoned(publisher, self.spec.retain_staged_seconds, now)
        policy = self.spec.expiry
        if identifier == ledger.IDENTIFIER:
            report.compacted_files += compact_ledger(self.lake, table, self.spec)
            policy = self.spec.ledger_expiry
        report.expired_snapshots += expire(
            self.lake, table, policy, now, self.spec.follow_horizon_seconds
        )

    def _tables(self, report: UpkeepReport) -> list[Identifier]:
        namespace = tuple(self.spec.namespace.split("."))
        ours = {(*namespace, f"{name}{end}") for name in SCHEMAS for end in ("", REJECTED_SUFFIX)}
        ours.add(ledger.IDENTIFIER)
        tables: list[Identifier] = []
        for below in (namespace, ledger.IDENTIFIER[:-1]):
            try:
                tables += list_tables(self.lake.profile, self.lake.catalog(), below)
            except NotFoundError:
                continue
            except NeveError as error:
                self._fail(report, ".".join(below), error, str(error))
        return [identifier for identifier in tables if identifier in ours]

    def _fail(self, report: UpkeepReport, name: str, error: Exception, reason: str) -> None:
        logger.warning("%s was not looked after: %s", name, reason)
        sentry.capture(error, PART, name)
        report.failures[name] = reason
