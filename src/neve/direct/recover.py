"""Register files that were acknowledged and whose commit was not confirmed, each exactly once.

Files without a record were never acknowledged: they are left to orphan removal.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyiceberg.typedef import Record

from neve import failpoints
from neve.direct.recover_plan import Action, AppendHistory, RecordPlan, leave, plan_record
from neve.direct.recovery import RecoveryRecord, RecoveryStore, StoredRecord
from neve.errors import CorruptionError, NeveError
from neve.lake.appends import AppendTable
from neve.lake.catalog import open_catalog
from neve.lake.commit_loop import CommitCounters, RetryPolicy
from neve.lake.create import load_if_exists
from neve.lake.data_files import data_file_of
from neve.lake.faults import explained
from neve.lake.identifier import name_of
from neve.lake.profile import DEFAULT_CATALOG, CatalogProfile, profile_named
from neve.lake.snapshot_limit import SnapshotLimit
from neve.observe.failures import failure_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from pyiceberg.manifest import DataFile

    from neve.config import Settings
    from neve.lake.identifier import Identifier

logger = logging.getLogger(__name__)

REGISTERED, COMMITTED, LEFT, FORGOTTEN = "registered", "committed", "left", "forgotten"
TO_REGISTER, TO_REMOVE = "to register", "to remove"
# Of a dry run, and of a run.
_OUTCOMES = {
    Action.REGISTER: (TO_REGISTER, REGISTERED),
    Action.REMOVE: (TO_REMOVE, COMMITTED),
    Action.LEAVE: (LEFT, LEFT),
}
_PROGRESS_RECORDS = 50


@dataclass(frozen=True)
class RecoveryReport:
    """What became of a recovery record.

    Args:
        table: namespace and name; None: the record is damaged.
        outcome: `registered`: its files are in the table now; `committed`: they were already, and
            the record is removed; `left`: it is still there; `forgotten`: a person gave it up; of a
            dry run `to register`, `to remove`.
        snapshot_id: the snapshot of the commit, where it is known.
        hint: what a person can do with a record that is left.
    """

    id: str
    table: str | None
    rows: int
    files: int
    written_at: datetime | None
    outcome: str
    snapshot_id: int | None
    reason: str
    hint: str | None = None


def recover(
    settings: Settings, *, dry_run: bool = False, progress: Callable[[str], None] = logger.info
) -> list[RecoveryReport]:
    """Register what recovery records name and no snapshot has. Idempotent; several may run at once.

    Args:
        dry_run: only say what would be done.

    Raises:
        NeveError: the catalog or the records cannot be read. Later failures leave the record that
            they concern, and say so in its report.
    """
    profile = profile_named(settings, DEFAULT_CATALOG)
    profile.require_catalog("recovery")
    with _open_store(settings) as store:
        # Before any table: what a record says was tried before the table is read.
        stored = store.read_all()
        if not stored:
            return []
        deadline_seconds = settings.direct.deadline_seconds
        worker = _Recovery(profile, store, deadline_seconds, dry_run=dry_run)
        worker.expect([each.content for each in stored if isinstance(each.content, RecoveryRecord)])
        reports = []
        try:
            for number, record in enumerate(stored):
                if number and number % _PROGRESS_RECORDS == 0:
                    progress(f"{number} of {len(stored)} recovery records are done")
                reports.append(worker.run(record))
        finally:
            worker.close()
        return reports


def forget_record(settings: Settings, record_id: str) -> RecoveryReport:
    """Remove a record, whatever became of its files, which stay where they are.

    Raises:
        NotFoundError: there is no such record.
    """
    report = find_record(settings, record_id)
    with _open_store(settings) as store:
        store.remove(record_id)
    logger.warning("record %s of %s is forgotten: %d rows", record_id, report.table, report.rows)
    return replace(report, outcome=FORGOTTEN, reason="a person decided so", hint=None)


def find_record(settings: Settings, record_id: str) -> RecoveryReport:
    """Return what a record says. Raises NotFoundError."""
    with _open_store(settings) as store:
        return _report(store.read(record_id), leave("nothing was tried"), dry_run=True)


def _open_store(settings: Settings) -> RecoveryStore:
    return RecoveryStore(profile_named(settings, DEFAULT_CATALOG), settings.direct.recovery)


class _Recovery:
    """One run over all records."""

    def __init__(
        self,
        profile: CatalogProfile,
        store: RecoveryStore,
        deadline_seconds: float,
        *,
        dry_run: bool,
    ) -> None:
        self._profile = profile
        self._store = store
        self._policy = RetryPolicy(deadline_seconds=deadline_seconds)
        self._dry_run = dry_run
        self._records: dict[Identifier, list[RecoveryRecord]] = {}
        self._histories: dict[Identifier, AppendHistory | None] = {}
        # A table that cannot be reached is not asked for again for each of its records.
        self._failures: dict[Identifier, NeveError] = {}
        self._catalog = open_catalog(profile)

    def close(self) -> None:
        self._catalog.close()

    def expect(self, records: list[RecoveryRecord]) -> None:
        for record in records:
            self._records.setdefault(record.table, []).append(record)

    def run(self, stored: StoredRecord) -> RecoveryReport:
        if isinstance(stored.content, CorruptionError):
            hint = stored.content.hint or "drop it with: neve recover --forget {id}"
            plan = leave(stored.content.message, hint)
        else:
            plan = self._try(stored.content)
        report = _report(stored, plan, dry_run=self._dry_run)
        level = logging.WARNING if plan.action is Action.LEAVE else logging.INFO
        logger.log(level, "record %s: %s: %s", report.id, report.outcome, report.reason)
        return report

    def _try(self, record: RecoveryRecord) -> RecordPlan:
        if record.table in self._failures:
            return _failed(self._failures[record.table])
        try:
            history = self._history(record.table)
            if history is None:
                return leave("the table does not exist")
            plan = plan_record(record, history)
            return plan if self._dry_run else self._carry_out(record, plan, history)
        except Exception as error:  # noqa: BLE001 - a record that fails stops no other
            failure = failure_of(error, "recover", name_of(record.table))
            if failure.retryable:
                self._failures[record.table] = failure
            return _failed(failure)

    def _history(self, identifier: Identifier) -> AppendHistory | None:
        """Return what a table shows, read on first use; None: there is no such table."""
        if identifier not in self._histories:
            profile = self._profile
            table = load_if_exists(profile, self._catalog, identifier)
            history = None
            if table is not None:
                # Registering one record removes no snapshot that could decide on the next one.
                target = AppendTable(profile, table, SnapshotLimit(None))
                history = AppendHistory(profile, target, self._records[identifier])
            self._histories[identifier] = history
        return self._histories[identifier]

    def _carry_out(
        self, record: RecoveryRecord, plan: RecordPlan, history: AppendHistory
    ) -> RecordPlan:
        if plan.action is Action.LEAVE:
            return plan
        if plan.action is Action.REGISTER:
            files = _described(record, history)
            if isinstance(files, RecordPlan):
                return files
            # Whoever registers the same append meanwhile has the same id, and only one wins.
            appended = history.target.append(
                files,
                record.append_id,
                policy=self._policy,
                counters=CommitCounters(),
                others_append=True,
            )
            failpoints.reach("recover.registered")
            plan = replace(plan, snapshot_id=appended.snapshot_id)
        self._store.remove(record.append_id)
        return plan


def _described(record: RecoveryRecord, history: AppendHistory) -> list[DataFile] | RecordPlan:
    """Return a record's files as a commit needs them, or why they cannot be registered."""
    target, files = history.target, []
    with explained(history.profile):
        for recorded in record.files:
            try:
                file = data_file_of(
                    target.metadata,
                    target.io,
                    recorded.path,
                    Record(*recorded.partition),
                    recorded.spec_id,
                    recorded.sort_order_id,
                )
            except ValueError as error:
                return leave(f"{recorded.path} cannot be read: {error}")
            if (file.file_size_in_bytes, file.record_count) != (recorded.size, recorded.rows):
                return leave(f"{recorded.path} has other rows than were written")
            files.append(file)
    return files


def _failed(error: NeveError) -> RecordPlan:
    return leave(error.message, error.hint or "run neve recover again")


def _report(stored: StoredRecord, plan: RecordPlan, *, dry_run: bool) -> RecoveryReport:
    record = stored.content if isinstance(stored.content, RecoveryRecord) else None
    return RecoveryReport(
        stored.id,
        name_of(record.table) if record else None,
        record.rows if record else 0,
        len(record.files) if record else 0,
        record.written_at if record else None,
        _OUTCOMES[plan.action][0 if dry_run else 1],
        plan.snapshot_id,
        plan.reason,
        plan.hint and plan.hint.replace("{id}", stored.id),
    )
