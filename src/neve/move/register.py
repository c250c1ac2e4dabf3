"""Register a moved table in its catalog: new, in the place of another, or as its continuation.

Each registration is one atomic commit. After a lost answer the catalog is read, and only what it
shows decides; nothing is cleaned up.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from neve.errors import CatalogError, Code
from neve.lake.commit_loop import CommitCounters, RetryPolicy, commit_until_known
from neve.lake.metadata_json import MetadataJson
from neve.lake.registering import RegisteredTable, registered_table, require_registering
from neve.move.extension import extended
from neve.move.record import read_record
from neve.move.spec import Existing

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.table_ref import TableRef


class Outcome(str, Enum):
    """What a registration did."""

    REGISTERED = "registered"
    EXTENDED = "extended"
    REPLACED = "replaced"
    # By an earlier run, or by another move of the same version of the source.
    ALREADY_THERE = "already there"


@dataclass(frozen=True)
class Registration:
    """What a registration did, and the metadata that the catalog has now."""

    outcome: Outcome
    metadata: MetadataJson


def read_target(lake: Lake, target: TableRef) -> MetadataJson | None:
    """Return a table of the target catalog as it is now; None: there is none. Writes nothing.

    Raises:
        UnsupportedError: that catalog registers no tables.
    """
    require_registering(lake, target.catalog)
    return registered_table(lake, target).read()


def register(
    lake: Lake,
    target: TableRef,
    moved: MetadataJson,
    existing: Existing,
    expected: MetadataJson | None,
    retry: RetryPolicy | None = None,
) -> Registration:
    """Make a moved table known under its name; its namespace is made if there is none.

    Atomic; idempotent for the same version of the source.

    Args:
        moved: the version that was copied: its metadata file at the target, and what is in it.
        existing: what becomes of a table that has the name already.
        expected: the table that the plan saw under the name (`read_target`).

    Raises:
        CatalogError: the name is taken, or the target was written to (code: conflict).
        UnsupportedError: the catalog cannot do it.
        ConflictError: other writers were first in every attempt; nothing was applied.
        UnknownOutcomeError: the answer was lost, and the catalog does not show the table yet.
    """
    require_registering(lake, target.catalog)
    attempts = _Attempts(registered_table(lake, target), target, moved, existing, expected)
    outcome = commit_until_known(
        attempts.refresh,
        attempts.commit,
        attempts.find_applied,
        policy=retry or RetryPolicy(),
        counters=CommitCounters(),
    )
    attempts.refresh()
    if attempts.present is None:
        raise _refusal(target, "it was dropped right after it was registered", "move it again")
    return Registration(outcome, attempts.present)


class _Attempts:
    """One registration, repeated on fresh metadata until its outcome is known."""

    def __init__(
        self,
        table: RegisteredTable,
        target: TableRef,
        moved: MetadataJson,
        existing: Existing,
        expected: MetadataJson | None,
    ) -> None:
        self._table = table
        self._target = target
        self._moved = moved
        self._existing = existing
        self._expected = expected
        self._sent: Outcome | None = None
        self.present: MetadataJson | None = None

    def refresh(self) -> None:
        self.present = self._table.read()

    def commit(self) -> Outcome:
        if self._is_applied():
            return self.find_applied() or Outcome.ALREADY_THERE
        if self._expected is None:
            return self._insert()
        if self.present is None:
            raise _refusal(self._target, "it was dropped while it was moved", "run it again")
        if self._existing is Existing.EXTEND:
            return self._extend(self._expected, self.present)
        if self._existing is Existing.REPLACE:
            return self._replace(self._expected, self.present)
        raise _exists(self._target)

    def find_applied(self) -> Outcome | None:
        if not self._is_applied():
            return None
        # Of several moves of one version, the one whose metadata file is named has registered it.
        is_ours = self._sent is Outcome.EXTENDED or self._names_our_file()
        return self._sent if is_ours else Outcome.ALREADY_THERE

    def _insert(self) -> Outcome:
        if self.present is not None:
            raise _exists(self._target)
        self._sent = Outcome.REGISTERED
        self._table.insert(self._moved.metadata_location)
        return self._sent

    def _extend(self, expected: MetadataJson, present: MetadataJson) -> Outcome:
        if expected.snapshots.keys() - present.snapshots.keys():
            # Its files may have been counted as there already, and be deleted by now.
            raise _refusal(
                self._target, "its snapshots were expired while it was extended", "run it again"
            )
        document = extended(present, self._moved)
        self._sent = Outcome.EXTENDED
        self._table.extend(present, document)
        return self._sent

    def _replace(self, expected: MetadataJson, present: MetadataJson) -> Outcome:
        if present.metadata_location != expected.metadata_location:
            raise _refusal(
                self._target,
                "it was written to while it was moved",
                "run it again if what was written there is not needed",
            )
        self._sent = Outcome.REPLACED
        self._table.replace(present, self._moved.metadata_location)
        return self._sent

    def _is_applied(self) -> bool:
        """Tell whether the table has this version, whatever was committed to it since."""
        present, moved = self.present, self._moved
        if present is None:
            return False
        if self._names_our_file():
            return True
        record = read_record(present)
        if record is None or present.uuid != moved.uuid or record != read_record(moved):
            return False
        # Who replaces a table wants exactly this version, and not what was written on top of it.
        is_same = (present.refs, present.snapshots.keys()) == (moved.refs, moved.snapshots.keys())
        return is_same or self._existing is not Existing.REPLACE

    def _names_our_file(self) -> bool:
        # Equal metadata files have equal names: one that was there before proves nothing.
        files = _metadata_files(self.present) - _metadata_files(self._expected)
        return self._moved.metadata_location in files


def _metadata_files(metadata: MetadataJson | None) -> set[str]:
    """Return the metadata files of a table, as far back as its log goes."""
    if metadata is None:
        return set()
    log = metadata.document.get("metadata-log") or ()
    return {metadata.metadata_location, *(entry["metadata-file"] for entry in log)}


def _exists(target: TableRef) -> CatalogError:
    return CatalogError(
        f"table {target.name} exists already",
        hint="extend it: --incremental; or put the source in its place: --replace",
        code=Code.CONFLICT,
    )


def _refusal(target: TableRef, reason: str, hint: str) -> CatalogError:
    return CatalogError(
        f"{target.name} cannot be registered: {reason}", hint=hint, code=Code.CONFLICT
    )
