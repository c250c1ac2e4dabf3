"""Rows into tables of a catalog: data files, then one commit through the lake's commit loop."""

from __future__ import annotations

import logging
import threading
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from neve import failpoints
from neve.direct.results import TableResult
from neve.errors import ConflictError, NeveError, UnavailableError, UnknownOutcomeError
from neve.lake.appends import AppendTable
from neve.lake.catalog import open_catalog
from neve.lake.commit_loop import CommitCounters, RetryPolicy
from neve.lake.create import ensure_table
from neve.lake.data_files import write_data_files
from neve.observe.commits import CommitMeasured, CommitObserver, ignore_commits
from neve.publish.telemetry_tables import telemetry_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

    from neve.direct.deadline import Deadline
    from neve.direct.recovery import RecoveryStore
    from neve.direct.spec import DirectSpec
    from neve.lake.create import TableSpec
    from neve.lake.profile import CatalogProfile

logger = logging.getLogger(__name__)

# Of the time that a write has: for the recovery record, if the commit is not confirmed.
_RECORD_SECONDS = 2.0


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
        self._lock = threading.Lock()
        self._tables: dict[str, AppendTable] = {}

    def write(self, table: str, rows: pa.Table, deadline: Deadline) -> TableResult:
        deadline.require("writing data files")
        target = self._table(table)
        files = write_data_files(target.metadata, target.io, rows, partition_directories=True)
        failpoints.reach("direct.written")
        return self._commit(target, files, deadline)

    def close(self) -> None:
        self._catalog.close()
        if self._recovery is not None:
            self._recovery.close()

    def _table(self, name: str) -> AppendTable:
        """Return a table, made or given its columns on first use."""
        with self._lock:
            if name not in self._tables:
                wanted = telemetry_table(self._spec.namespace, name, self._spec.promotions)
                self._tables[name] = AppendTable(self._profile, self._ensure(wanted))
            return self._tables[name]

    def _ensure(self, wanted: TableSpec) -> Table:
        """Load or make a table. Without it, nothing says where and how files are written.

        Raises:
            UnavailableError: the catalog is away.
        """
        try:
            return ensure_table(self._profile, self._catalog, wanted)
        except NeveError as error:
            if not error.retryable:
                raise
            name = ".".join(wanted.identifier)
            raise UnavailableError(
                f"table {name} cannot be loaded: {error.message}", hint=error.hint
            ) from error

    def _commit(
        self, target: AppendTable, files: Sequence[DataFile], deadline: Deadline
    ) -> TableResult:
        """Commit files that are written. A commit that may still come true is no exception."""
        counters = CommitCounters()
        written = TableResult(
            target.name,
            rows=sum(file.record_count for file in files),
            bytes=sum(file.file_size_in_bytes for file in files),
            files=tuple(file.file_path for file in files),
            committed=False,
        )
        result = written
        append_id, base = str(uuid.uuid4()), target.metadata
        try:
            deadline.require("a commit")
            policy = RetryPolicy(deadline_seconds=self._commit_seconds(deadline))
            snapshot_id = target.append(files, append_id, policy=policy, counters=counters)
            result = replace(written, committed=True, snapshot_id=snapshot_id)
        except NeveError as error:
            if not (error.retryable or isinstance(error, (ConflictError, UnknownOutcomeError))):
                raise
            result = replace(written, error=error)
        finally:
            self._observer(_measured(result, counters))
        if result.committed:
            failpoints.reach("direct.committed")
            _log_committed(result)
        else:
            _log_not_committed(result)
            result = self._keep(result, append_id, base, files)
        return result

    def _commit_seconds(self, deadline: Deadline) -> float:
        """Return how long a commit may be tried, so that time is left for a recovery record."""
        seconds = deadline.remaining_seconds()
        if self._recovery is None:
            return seconds
        return max(seconds / 2, seconds - _RECORD_SECONDS)

    def _keep(
        self, result: TableResult, append_id: str, base: TableMetadata, files: Sequence[DataFile]
    ) -> TableResult:
        """Have a recovery record keep rows whose commit was not confirmed, if so configured.

        Also when the time is over, as after a request to a catalog that hangs: whoever ends the
        process before the answer ends it before the acknowledgement.
        """
        if self._recovery is None:
            return result
        failpoints.reach("direct.unconfirmed")
        try:
            path = self._recovery.keep(append_id, tuple(result.table.split(".")), base, files)
        except NeveError as error:
            logger.warning("%s: there is no recovery record: %s", result.table, error)
            return result
        failpoints.reach("direct.recorded")
        logger.warning("%s: %s keeps %d rows", result.table, path, result.rows)
        return replace(result, recovery_record=path)


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


def _measured(result: TableResult, counters: CommitCounters) -> CommitMeasured:
    return CommitMeasured(
        result.table,
        attempts=counters.attempts,
        conflicts=counters.conflicts,
        unknown_outcomes=counters.unknown_outcomes,
        seconds=sum(counters.commit_seconds),
        manifests=counters.manifests,
        files=len(result.files),
        rows=result.rows,
        bytes=result.bytes,
        committed=result.committed,
    )


def _log_committed(result: TableResult) -> None:
    logger.info(
        "%s: snapshot %s has %d rows in %d files",
        result.table,
        result.snapshot_id,
        result.rows,
        len(result.files),
    )


def _log_not_committed(result: TableResult) -> None:
    logger.warning(
        "%s: %d rows are written and not committed: %s; files: %s",
        result.table,
        result.rows,
        result.error,
        ", ".join(result.files),
    )
