"""Rows into tables of a catalog: data files, then one commit through the lake's commit loop."""

from __future__ import annotations

import logging
import threading
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from neve import failpoints
from neve.direct.results import TableResult
from neve.errors import ConflictError, NeveError, UnknownOutcomeError
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

    from neve.direct.deadline import Deadline
    from neve.direct.spec import DirectSpec
    from neve.lake.profile import CatalogProfile

logger = logging.getLogger(__name__)


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

    def _table(self, name: str) -> AppendTable:
        """Return a table, made or given its columns on first use."""
        with self._lock:
            if name not in self._tables:
                wanted = telemetry_table(self._spec.namespace, name, self._spec.promotions)
                made = ensure_table(self._profile, self._catalog, wanted)
                self._tables[name] = AppendTable(self._profile, made)
            return self._tables[name]

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
        try:
            deadline.require("a commit")
            policy = RetryPolicy(deadline_seconds=deadline.remaining_seconds())
            snapshot_id = target.append(files, str(uuid.uuid4()), policy=policy, counters=counters)
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
        return result


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
