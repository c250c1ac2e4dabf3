"""What becomes of a recovery record: register its files, remove it, or leave it to a person.

Only what the table shows decides. That the append is in no snapshot proves nothing as long as
snapshots may have been removed since it was tried: compaction and expiry erase every trace of it,
and its rows are in the table all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from pyiceberg.manifest import ManifestContent
from pyiceberg.table.metadata import TableMetadataV1

from neve.lake.faults import explained

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile

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
    """What the retained snapshots of a table show of appends."""

    def __init__(self, profile: CatalogProfile, target: AppendTable) -> None:
        self.profile = profile
        self.target = target
        self._live: set[str] = set()
        self._snapshots_read: set[int] = set()
        self._manifests_read: set[str] = set()
        self._wanted: set[str] = set()
        self._first_sequence_number = 0

    def expect(self, records: list[RecoveryRecord]) -> None:
        """Say which records are asked for: manifests are read once for all of them."""
        self._wanted = {file.path for record in records for file in record.files}
        self._first_sequence_number = min(record.base_sequence_number for record in records)

    def skip(self, snapshot_id: int) -> None:
        """Do not read a snapshot: the caller made it, and knows what it has."""
        self._snapshots_read.add(snapshot_id)

    def is_complete_since(self, sequence_number: int) -> bool:
        """Tell whether no snapshot with a greater sequence number was removed.

        Each commit of a snapshot takes the next number (Iceberg specification, "Sequence
        Numbers"), so that a removed snapshot leaves a gap. Following parents would not do:
        PyIceberg's expiry makes the oldest retained snapshot look like the first one, and a
        snapshot that `main` was rolled back from has no child.
        """
        metadata = self.target.metadata
        if isinstance(metadata, TableMetadataV1):
            return False
        retained = {snapshot.sequence_number for snapshot in self.target.snapshots}
        last = metadata.last_sequence_number
        # Less than it was: somebody has restored old metadata.
        return sequence_number <= last and retained.issuperset(range(sequence_number + 1, last + 1))

    def live_paths(self, record: RecoveryRecord) -> set[str]:
        """Return which files of a record are in some retained snapshot."""
        with explained(self.profile):
            for snapshot in self.target.snapshots:
                number = snapshot.sequence_number or 0
                is_read = snapshot.snapshot_id in self._snapshots_read
                if is_read or number <= self._first_sequence_number:
                    continue
                for manifest in snapshot.manifests(self.target.io):
                    self._read(manifest)
                self._snapshots_read.add(snapshot.snapshot_id)
        return self._live.intersection(file.path for file in record.files)

    def _read(self, manifest: ManifestFile) -> None:
        if (
            manifest.content is not ManifestContent.DATA
            or (manifest.sequence_number or 0) <= self._first_sequence_number
            or manifest.manifest_path in self._manifests_read
        ):
            return
        entries = manifest.fetch_manifest_entry(self.target.io, discard_deleted=True)
        paths = {entry.data_file.file_path for entry in entries}
        self._live |= paths & self._wanted
        self._manifests_read.add(manifest.manifest_path)


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
    if not history.is_complete_since(record.base_sequence_number):
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
