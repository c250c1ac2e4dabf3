"""A write to one table of a catalog: data files, then one commit by the lake's commit loop."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyiceberg.io.pyarrow import schema_to_pyarrow

from neve import failpoints
from neve.direct.deadline import Deadline
from neve.direct.results import TableResult, may_pass
from neve.errors import NeveError, NotFoundError, UnavailableError
from neve.lake.commit_loop import CommitCounters, RetryPolicy
from neve.lake.data_files import write_data_files
from neve.lake.faults import explained
from neve.lake.identifier import parse_identifier
from neve.observe.commits import CommitMeasured, CommitObserver

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.manifest import DataFile

    from neve.direct.recovery import RecoveryStore
    from neve.direct.sink import RecordCounts
    from neve.lake.appends import Appended, AppendTable
    from neve.lake.profile import CatalogProfile

logger = logging.getLogger(__name__)

# Of the time that a write has: for the recovery record, if the commit is not confirmed.
_RECORD_SECONDS = 2.0


@dataclass(frozen=True)
class OpenTable:
    """A table that was made, or given its columns, when it had a certain schema."""

    target: AppendTable
    schema_id: int

    @property
    def is_current(self) -> bool:
        """Whether the schema is still the one that was looked at."""
        return self.target.metadata.current_schema_id == self.schema_id


class TableAppend:
    """A write to one table of the catalog; `TableWrite` has the contract.

    Args:
        forget: is called when the table was dropped, so that the next write opens it anew.
        recovery: keeps rows whose commit was not confirmed; None: nobody does.
    """

    def __init__(
        self,
        profile: CatalogProfile,
        table: OpenTable,
        observer: CommitObserver,
        forget: Callable[[], None],
        recovery: RecoveryStore | None = None,
    ) -> None:
        self._profile = profile
        self._table = table
        self._observer = observer
        self._forget = forget
        self._recovery = recovery
        self._append_id = str(uuid.uuid4())
        # Files of one write have one schema, also if another thread reads a newer one meanwhile.
        self._metadata = table.target.metadata
        self._files: list[DataFile] = []

    @property
    def schema(self) -> pa.Schema:
        return schema_to_pyarrow(self._metadata.schema(), include_field_ids=False)

    def write(self, rows: pa.Table, deadline: Deadline) -> None:
        deadline.require("writing data files")
        row_bytes = rows.nbytes // max(1, len(rows))
        with explained(self._profile):
            files = write_data_files(
                self._metadata,
                self._table.target.io,
                rows,
                row_bytes=row_bytes,
                partition_directories=True,
            )
        self._files += files
        failpoints.reach("direct.written")
        for file in files:
            logger.debug(
                "%s: wrote %d rows to %s",
                self._table.target.name,
                file.record_count,
                file.file_path,
            )

    def commit(self, deadline: Deadline, counts: RecordCounts) -> TableResult:
        counters = CommitCounters()
        result = self._written()
        counts.require(result.table, result.rows)
        try:
            appended = self._append(deadline, counts, counters)
            result = replace(result, committed=True, snapshot_id=appended.snapshot_id)
        except NeveError as error:
            result = replace(result, error=error)
            if not may_pass(error):
                raise
        finally:
            self._tell(_measured(result, counters))
            _log(result)
        if not result.committed:
            return self._keep(result)
        failpoints.reach("direct.committed")
        return result

    def abandon(self, error: NeveError) -> TableResult:
        result = replace(self._written(), error=error)
        _log(result)
        return result

    def _tell(self, commit: CommitMeasured) -> None:
        try:
            self._observer(commit)
        except Exception:
            # Whatever an observer does, the commit has come to an end.
            logger.exception("%s: the observer of commits failed", commit.table)

    def _append(
        self, deadline: Deadline, counts: RecordCounts, counters: CommitCounters
    ) -> Appended:
        deadline.require("a commit")
        target = self._table.target
        until = Deadline.after(self._commit_seconds(deadline))
        policy = RetryPolicy(deadline_seconds=until.remaining_seconds())
        logger.debug("%s: committing %d files", target.name, len(self._files))
        try:
            with until.bounds_requests():
                return target.append(
                    self._files,
                    self._append_id,
                    counts={"read": counts.read, "dead_letters": counts.rejected},
                    policy=policy,
                    counters=counters,
                )
        except NotFoundError as error:
            # The files are in no table. The next write makes the table, or takes the new one.
            self._forget()
            self._recovery = None
            raise UnavailableError(
                f"table {target.name} was dropped, or made anew, during the write",
                hint="send the rows again",
            ) from error

    def _commit_seconds(self, deadline: Deadline) -> float:
        """Return how long a commit may be tried, so that time is left for a recovery record."""
        seconds = deadline.remaining_seconds()
        if self._recovery is None:
            return seconds
        return max(seconds / 2, seconds - _RECORD_SECONDS)

    def _keep(self, result: TableResult) -> TableResult:
        """Have a recovery record keep rows whose commit was not confirmed, if so configured.

        Also when the time is over, as after a request to a catalog that hangs: whoever ends the
        process before the answer ends it before the acknowledgement.
        """
        if self._recovery is None:
            return result
        failpoints.reach("direct.unconfirmed")
        table = parse_identifier(result.table)
        try:
            path = self._recovery.keep(self._append_id, table, self._metadata, self._files)
        except NeveError as error:
            logger.warning("%s: there is no recovery record: %s", result.table, error)
            return result
        failpoints.reach("direct.recorded")
        logger.warning("%s: %s keeps %d rows", result.table, path, result.rows)
        return replace(result, recovery_record=path)

    def _written(self) -> TableResult:
        return TableResult(
            self._table.target.name,
            rows=sum(file.record_count for file in self._files),
            bytes=sum(file.file_size_in_bytes for file in self._files),
            files=tuple(file.file_path for file in self._files),
            committed=False,
        )


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


def _log(result: TableResult) -> None:
    if result.committed:
        logger.info(
            "%s: snapshot %s has %d rows in %d files",
            result.table,
            result.snapshot_id,
            result.rows,
            len(result.files),
        )
    elif result.files:
        logger.warning(
            "%s: %d rows are written and not committed: %s; files: %s",
            result.table,
            result.rows,
            result.error,
            ", ".join(result.files),
        )
