"""Rows into tables of a catalog: data files, then one commit through the lake's commit loop."""

from __future__ import annotations

import logging
import threading
import uuid
from typing import TYPE_CHECKING

from neve import failpoints
from neve.direct.results import TableResult
from neve.errors import ConflictError, NeveError, UnknownOutcomeError
from neve.lake.appends import AppendTable
from neve.lake.catalog import open_catalog
from neve.lake.commit_loop import CommitCounters, RetryPolicy
from neve.lake.create import ensure_table
from neve.lake.data_files import write_data_files
from neve.lake.snapshot_limit import SnapshotLimit
from neve.publish.telemetry_tables import telemetry_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyiceberg.manifest import DataFile

    from neve.direct.deadline import Deadline
    from neve.direct.spec import DirectSpec
    from neve.lake.profile import CatalogProfile

logger = logging.getLogger(__name__)

# A REST catalog's login to the store expires, and others may have changed the table's columns.
_READ_AGAIN_SECONDS = 60.0


class TableSink:
    """Writes to the telemetry tables of a catalog; `Sink` has the contract."""

    def __init__(self, profile: CatalogProfile, spec: DirectSpec) -> None:
        self._profile = profile
        self._spec = spec
        self._catalog = open_catalog(profile)
        self._lock = threading.Lock()
        self._tables: dict[str, AppendTable] = {}

    def write(self, table: str, rows: pa.Table, deadline: Deadline) -> TableResult:
        deadline.require("writing data files")
        target = self._table(table)
        target.refresh_if_older(_READ_AGAIN_SECONDS)
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
                limit = SnapshotLimit(self._spec.max_snapshots, self._spec.follow_horizon_seconds)
                self._tables[name] = AppendTable(self._profile, made, limit)
            return self._tables[name]

    def _commit(
        self, target: AppendTable, files: Sequence[DataFile], deadline: Deadline
    ) -> TableResult:
        append_id = str(uuid.uuid4())
        counters = CommitCounters()
        paths = tuple(file.file_path for file in files)
        rows = sum(file.record_count for file in files)
        size = sum(file.file_size_in_bytes for file in files)
        try:
            deadline.require("a commit")
            policy = RetryPolicy(deadline_seconds=deadline.remaining_seconds())
            appended = target.append(files, append_id, policy=policy, counters=counters)
            snapshot_id = appended.snapshot_id
        except (ConflictError, UnknownOutcomeError) as error:
            logger.warning(
                "%s: %d rows are written and not committed: %s; files: %s",
                target.name,
                rows,
                error,
                ", ".join(paths),
            )
            return TableResult(target.name, rows, size, paths, committed=False, error=error)
        except NeveError as error:
            if not error.retryable:
                raise
            return TableResult(target.name, rows, size, paths, committed=False, error=error)
        failpoints.reach("direct.committed")
        logger.info(
            "%s: snapshot %d has %d rows in %d files", target.name, snapshot_id, rows, len(files)
        )
        return TableResult(target.name, rows, size, paths, committed=True, snapshot_id=snapshot_id)
