"""Keep tables small that are committed to every few seconds: expire snapshots past a retention."""

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
from neve.publish import ledger
from neve.publish.gate import REJECTED_SUFFIX
from neve.telemetry.schemas import SCHEMAS

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.identifier import Identifier

logger = logging.getLogger(__name__)

# Each look loads every table.
LOOK_SECONDS = 300.0


@dataclass
class Upkeep:
    """Looks after the tables that consolidation writes, now and then."""

    lake: Lake
    spec: ConsolidateSpec
    clock: Callable[[], float] = time.time
    next_look: float = 0.0

    def run_when_due(self) -> int:
        """Expire what can go; return how many snapshots went.

        Best effort: what fails is tried again at the next look, and never fails a batch.
        """
        now = self.clock()
        if now < self.next_look:
            return 0
        self.next_look = now + LOOK_SECONDS
        try:
            return sum(self._expire(identifier, now) for identifier in self._tables())
        except NeveError as error:
            logger.warning("snapshots were not expired: %s", error)
            return 0

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

    def _expire(self, identifier: Identifier, now: float) -> int:
        older_than_ms = int((now - self.spec.retain_snapshots_seconds) * 1000)
        keep = self.spec.retain_snapshots_min
        table = load_table(self.lake.profile, self.lake.catalog(), identifier)
        before = count_expirable(table.metadata, older_than_ms, keep)
        if before < self.spec.expire_at_once:
            return 0
        logger.info("%s: expiring %d snapshots", ".".join(identifier), before)
        expire_snapshots(self.lake, identifier, older_than_ms, keep)
        return before
