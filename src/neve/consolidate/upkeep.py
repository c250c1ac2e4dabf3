"""Keep tables small that are committed to every few seconds, and clean up what nobody published."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve.consolidate.spec import ConsolidateSpec
from neve.errors import NeveError, NotFoundError
from neve.lake.catalog import list_tables, load_table
from neve.lake.expiry import count_expirable, expire_snapshots
from neve.lake.staging import StagingTable
from neve.publish import ledger
from neve.publish.publisher import Publisher
from neve.publish.rejected_rows import REJECTED_SUFFIX
from neve.publish.stagings import Streams
from neve.telemetry.schemas import SCHEMAS

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from neve.lake import Lake
    from neve.lake.identifier import Identifier

logger = logging.getLogger(__name__)

# Each look loads every table.
LOOK_SECONDS = 300.0


@dataclass
class Upkept:
    """What a look at the tables came to."""

    expired: int = 0
    abandoned: int = 0


@dataclass
class Upkeep:
    """Looks after the tables that consolidation writes, now and then."""

    lake: Lake
    spec: ConsolidateSpec
    streams: Streams
    clock: Callable[[], float] = time.time
    next_look: float = 0.0

    def run_when_due(self) -> Upkept:
        """Expire what can go, and discard what was abandoned.

        Best effort: what fails is tried again at the next look, and never fails a batch.
        """
        now, done = self.clock(), Upkept()
        if now < self.next_look:
            return done
        self.next_look = now + LOOK_SECONDS
        try:
            for identifier in self._tables():
                table = load_table(self.lake.profile, self.lake.catalog(), identifier)
                done.abandoned += self._discard_abandoned(table, now)
                done.expired += self._expire(identifier, table, now)
        except NeveError as error:
            logger.warning("the tables were not looked after: %s", error)
        return done

    def _tables(self) -> list[Identifier]:
        namespace = tuple(self.spec.namespace.split("."))
        ours = {(*namespace, f"{name}{end}") for name in SCHEMAS for end in ("", REJECTED_SUFFIX)}
        ours.add(ledger.IDENTIFIER)
        found: list[Identifier] = []
        for below in (namespace, ledger.IDENTIFIER[:-1]):
            try:
                found += list_tables(self.lake.profile, self.lake.catalog(), below)
            except NotFoundError:
                continue
        return [identifier for identifier in found if identifier in ours]

    def _discard_abandoned(self, table: Table, now: float) -> int:
        publisher = Publisher(StagingTable(self.lake.profile, table), self.streams)
        before_ms = int((now - self.spec.retain_staged_seconds) * 1000)
        found = publisher.abandoned(before_ms)
        for staged in found:
            logger.warning(
                "%s: %s, of %s rows, lost against another worker's; it is discarded",
                publisher.table.name,
                staged.ref,
                staged.summary.get("added-records", 0),
            )
            publisher.discard(staged)
        return len(found)

    def _expire(self, identifier: Identifier, table: Table, now: float) -> int:
        older_than_ms = int((now - self.spec.retain_snapshots_seconds) * 1000)
        keep = self.spec.retain_snapshots_min
        before = count_expirable(table.metadata, older_than_ms, keep)
        if before < self.spec.expire_at_once:
            return 0
        logger.info("%s: expiring %d snapshots", ".".join(identifier), before)
        expire_snapshots(self.lake, identifier, older_than_ms, keep)
        return before
