"""What becomes of a recovery record: register its files, remove it, or leave it to a person.

Only what the table shows decides. That the append is in no snapshot proves nothing as long as
snapshots may have been removed since it was tried: compaction and expiry erase every trace of it,
and its rows are in the table all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from neve.lake.append_history import RetainedFiles, has_all_files_since
from neve.lake.faults import explained

if TYPE_CHECKING:
    from neve.direct.recovery import RecoveryRecord
    from neve.lake.appends import AppendTable
    from neve.lake.profile import CatalogProfile

FORGET_HINT = (
    "look whether the table has the rows; then drop the record with: neve recover --forget {id}"
)


class Action(str, Enum):
    """What is to be done with a record."""

    REGISTER = "register"
    REMOVE = "remove"
    LEAVE = "leave"


@dataclass(frozen=True)
class RecordPlan:
    """What is to be done with a record, and why."""

    action: Action
    reason: str
    hint: str | None = None
    snapshot_id: int | None = None


def leave(reason: str, hint: str = FORGET_HINT) -> RecordPlan:
    return RecordPlan(Action.LEAVE, reason, hint)


class AppendHistory:
    """What the retained snapshots of a table show of the appends of some records."""

    def __init__(
        self, profile: CatalogProfile, target: AppendTable, records: Sequence[RecoveryRecord]
    ) -> None:
        self.profile = profile
        self.target = target
        self._files = RetainedFiles(
            target.io,
            {file.path for record in records for file in record.files},
            min(record.base_sequence_number for record in records),
        )

    def live_paths(self, record: RecoveryRecord) -> set[str]:
        """Return which files of a record are in some retained snapshot."""
        with explained(self.profile):
            live = self._files.find(self.target.document)
        return {file.path for file in record.files if file.path in live}


def plan_record(record: RecoveryRecord, history: AppendHistory) -> RecordPlan:
    """Decide what becomes of a record. Writes nothing.

    Args:
        history: of the record's table, read after the record was.
    """
    target = history.target
    if target.uuid != record.table_uuid:
        return leave("the table was dropped and made anew since")
    snapshot_id = target.find(record.append_id)
    if snapshot_id is not None:
        reason = f"it is committed: snapshot {snapshot_id}"
        return RecordPlan(Action.REMOVE, reason, snapshot_id=snapshot_id)
    live = history.live_paths(record)
    if len(live) == len(record.files):
        return RecordPlan(Action.REMOVE, "the table has all its files")
    if live:
        return leave(f"the table has {len(live)} of its {len(record.files)} files")
    if not has_all_files_since(target.document, record.base_sequence_number):
        return leave(
            "snapshots made since were removed, so that nothing shows whether it was committed"
        )
    return _check_files(record, history)


def _check_files(record: RecoveryRecord, history: AppendHistory) -> RecordPlan:
    target = history.target
    missing, changed = [], []
    with explained(history.profile):
        for file in record.files:
            if file.spec_id not in target.metadata.specs():
                return leave(f"the table has no partition spec {file.spec_id} any more")
            try:
                if len(target.io.new_input(file.path)) != file.size:
                    changed.append(file.path)
            except FileNotFoundError:
                missing.append(file.path)
    hint = "restore the files, or drop the record with: neve recover --forget {id}"
    if missing:
        return leave(f"{len(missing)} of its files are missing, {missing[0]} among them", hint)
    if changed:
        return leave(f"{changed[0]} has another size than was written", hint)
    return RecordPlan(Action.REGISTER, "it is in no snapshot")
