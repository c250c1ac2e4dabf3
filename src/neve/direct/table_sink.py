"""Rows into the telemetry tables of a catalog, which are made on demand."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from neve.direct.table_append import OpenTable, TableAppend
from neve.errors import NeveError, NotFoundError, UnavailableError
from neve.lake.appends import AppendTable
from neve.lake.catalog import open_catalog
from neve.lake.commit_loop import RetryPolicy, read_until_available
from neve.lake.create import ensure_table
from neve.observe.commits import CommitObserver, ignore_commits
from neve.publish.telemetry_tables import telemetry_table

if TYPE_CHECKING:
    from neve.direct.deadline import Deadline
    from neve.direct.recovery import RecoveryStore
    from neve.direct.spec import DirectSpec
    from neve.lake.profile import CatalogProfile

logger = logging.getLogger(__name__)

# A REST catalog's login to the store expires, and others may have changed the table's columns.
_READ_AGAIN_SECONDS = 60.0


class TableSink:
    """Writes to the telemetry tables of a catalog; `Sink` has the contract."""

    def __init__(
        self,
        profile: CatalogProfile,
        spec: DirectSpec,
        observer: CommitObserver = ignore_commits,
    ) -> None:
        self._profile = profile
        self._spec = spec
        self._observer = observer
        self._recovery = _open_recovery(profile, spec)
        self._catalog = open_catalog(profile)
        self._opening = threading.Lock()
        self._tables: dict[str, OpenTable] = {}

    def begin(self, table: str, deadline: Deadline) -> TableAppend:
        deadline.require(f"opening {table}")
        live = self._open(table, deadline)
        return TableAppend(
            self._profile,
            live,
            self._observer,
            lambda: self._forget(table, live),
            self._recovery,
        )

    def close(self) -> None:
        self._catalog.close()
        if self._recovery is not None:
            self._recovery.close()

    def _open(self, name: str, deadline: Deadline) -> OpenTable:
        """Return a table; on first use and after each change of its schema it gets its columns."""
        table = self._tables.get(name)
        if table is not None and self._still_exists(name, table) and table.is_current:
            return table
        with _held(self._opening, deadline, f"opening {name}"):
            table = self._tables.get(name)
            if table is None or not table.is_current:
                table = self._ensure(name, deadline)
                self._tables[name] = table
        return table

    def _ensure(self, name: str, deadline: Deadline) -> OpenTable:
        wanted = telemetry_table(self._spec.namespace, name, self._spec.promotions)
        policy = RetryPolicy(deadline_seconds=deadline.remaining_seconds())
        limit = self._spec.snapshot_limit(name)

        def ensure() -> OpenTable:
            live = ensure_table(self._profile, self._catalog, wanted, policy)
            target = AppendTable(self._profile, live, limit)
            return OpenTable(target, live.metadata.current_schema_id)

        table = read_until_available(ensure, policy)
        logger.debug("%s: open with schema %d", table.target.name, table.schema_id)
        return table

    def _still_exists(self, name: str, table: OpenTable) -> bool:
        """Read a table again after a while. False: it was dropped, or made anew."""
        try:
            table.target.refresh_if_older(_READ_AGAIN_SECONDS)
        except NotFoundError:
            self._forget(name, table)
            return False
        except NeveError as error:
            # Whether the rows can be committed is seen when they are.
            if not error.retryable:
                raise
            logger.debug("%s: not read again: %s", table.target.name, error)
        return True

    def _forget(self, name: str, table: OpenTable) -> None:
        with self._opening:
            if self._tables.get(name) is table:
                del self._tables[name]


def _open_recovery(profile: CatalogProfile, spec: DirectSpec) -> RecoveryStore | None:
    """Return where recovery records go; None: what is not confirmed is refused.

    Raises:
        ConfigError: accepted rows could be lost.
    """
    if not spec.accepts_unconfirmed:
        return None
    # Loads libraries that other writers do not need.
    from neve.direct.recovery import RecoveryStore, require_recovery

    require_recovery(profile, spec.recovery)
    return RecoveryStore(profile, spec.recovery)


@contextmanager
def _held(lock: threading.Lock, deadline: Deadline, step: str) -> Iterator[None]:
    """Hold a lock for a step; wait for it until the deadline. Raises UnavailableError."""
    if not lock.acquire(timeout=max(0.0, deadline.remaining_seconds())):
        raise UnavailableError(
            f"no time is left for {step}: another thread is busy with it",
            hint="send the rows again, or raise direct.deadline_seconds",
        )
    try:
        yield
    finally:
        lock.release()
