"""Repair a table that is in the catalog: its index, and, if it is asked for, its version.

A version whose manifests cannot be read is never given up by itself: the report says which file is
damaged, to which version the table can go back, and what that would lose.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from neve.config.merging import INDEXED_ROWS
from neve.errors import ConflictError, UsageError
from neve.lake.commit_loop import CommitCounters, RetryPolicy, commit_until_known
from neve.lake.expiry import reading
from neve.lake.horizons import ROOT_PROPERTY
from neve.lake.identifier import name_of
from neve.lake.json_table import JsonTable, json_table
from neve.lake.metadata_json import MAIN, MetadataJson
from neve.lake.metadata_updates import set_branch
from neve.lake.profile import DEFAULT_CATALOG, profile_named
from neve.lake.tables import summarize
from neve.upkeep.damage import Damage, find_damage
from neve.upkeep.orphans import Orphan
from neve.upkeep.table_kind import TableKind, table_kind
from neve.upkeep.unreferenced import unreferenced_files

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.table_ref import TableRef
    from neve.lake.unconfirmed import ReadUnconfirmed

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RepairReport:
    """What is broken in a table that is in the catalog, and what was done about it.

    Args:
        outcome: `nothing is broken`, `repaired`, `rolled back`, or `damaged`: a file has to be
            restored, or the table to go back; in a dry run `would be repaired` and so on.
        damaged_file: a manifest or manifest list of the current version that cannot be read.
        readable_snapshot_id: the newest version that can be read completely.
        lost_commits, lost_rows, returning_rows: of the commits since, as their summaries say.
        statements: what goes back to that version, and what brings its rows again.
        index: what became of a mirror's index; empty: nothing was wrong with it.
        unreferenced: the files of its location that are in no snapshot; see `unreferenced.py`.
    """

    table: str
    outcome: str
    damaged_file: str | None = None
    damage: str | None = None
    readable_snapshot_id: int | None = None
    readable_since: datetime | None = None
    lost_commits: int = 0
    lost_rows: int | None = None
    returning_rows: int | None = None
    statements: tuple[str, ...] = ()
    index: str = ""
    unreferenced_files: int | None = None
    unreferenced_bytes: int | None = None
    unreferenced_is_complete: bool = True
    unreferenced_skipped: str = ""
    unreferenced: tuple[Orphan, ...] = field(default=(), repr=False)

    @property
    def is_damaged(self) -> bool:
        """Whether it is left as it cannot be read."""
        return self.outcome == "damaged"


def repair_table(
    lake: Lake,
    ref: TableRef,
    *,
    dry_run: bool = False,
    roll_back: bool = False,
    unconfirmed: ReadUnconfirmed = tuple,
) -> RepairReport:
    """Look for what is broken in a table, and repair what can be without losing anything.

    Each repair is a commit of its own, atomic; it can be killed at any moment and run again.

    Args:
        dry_run: only say what would be done.
        roll_back: go back to the newest version that can be read, if the current one cannot.
        unconfirmed: reads the direct writes whose files may yet come into the table.

    Raises:
        NotFoundError: there is no such table.
        UsageError: it is to go back, and there is nothing to go back from or to.
        StorageError: the store does not answer; that is no damage, and nothing was changed.
        ConflictError: somebody has changed the table meanwhile; it was not rolled back.
    """
    profile = profile_named(lake.settings, ref.catalog)
    table = json_table(profile, lake.catalog(ref.catalog), ref.identifier)
    table.refresh()
    lake.progress(f"{ref.name}: reading the manifests of its current version")
    damage = find_damage(table.metadata, reading(table))
    report = RepairReport(ref.name, "nothing is broken")
    if damage is not None:
        report = _damaged(lake, ref, table.metadata, damage)
    if roll_back:
        report = _rolled_back(table, report, damage, dry_run=dry_run)
    if not report.is_damaged:
        report = _with_index(lake, ref, table.metadata, report, dry_run=dry_run)
    return replace(report, **unreferenced_files(lake, ref, unconfirmed))


def _damaged(lake: Lake, ref: TableRef, metadata: MetadataJson, damage: Damage) -> RepairReport:
    return RepairReport(
        ref.name,
        "damaged",
        damage.file,
        damage.reason,
        damage.readable_id,
        damage.readable_since,
        damage.lost_commits,
        damage.lost_rows,
        damage.returning_rows,
        _statements(lake, ref, metadata, damage),
    )


def _statements(
    lake: Lake, ref: TableRef, metadata: MetadataJson, damage: Damage
) -> tuple[str, ...]:
    if damage.readable_id is None:
        return ()
    catalog = "" if ref.catalog == DEFAULT_CATALOG else f"{ref.catalog}."
    name = name_of(ref.identifier).replace("'", "\\'")
    call = f"CALL {catalog}system.rollback_to_snapshot('{name}', {damage.readable_id})"
    kind = table_kind(lake.settings, ref.identifier, metadata)
    again = {
        TableKind.TELEMETRY: f"neve consolidate --replay {ref.name}",
        TableKind.MIRROR: f"neve merge {ref.name} --once",
    }
    return tuple(filter(None, (call, again.get(kind, ""))))


def _rolled_back(
    table: JsonTable, report: RepairReport, damage: Damage | None, *, dry_run: bool
) -> RepairReport:
    if damage is None:
        raise UsageError(
            f"all of {report.table} can be read: there is nothing to roll back",
            hint="to go back to an older version, use rollback_to_snapshot",
        )
    if damage.readable_id is None:
        raise UsageError(
            f"no version of {report.table} that is retained can be read completely",
            hint=f"restore {damage.file}",
        )
    if dry_run:
        return replace(report, outcome="would be rolled back")
    _roll_back(table, damage.snapshot_id, damage.readable_id)
    table.refresh()
    logger.warning("%s: rolled back to snapshot %d", report.table, damage.readable_id)
    return replace(report, outcome="rolled back")


def _roll_back(table: JsonTable, damaged_id: int, readable_id: int) -> None:
    """Move `main` back. Atomic; refused if it is not any more where the damage was found."""

    def attempt() -> bool:
        if table.metadata.current_snapshot_id != damaged_id:
            raise ConflictError(
                f"{table.name} has another version by now: it was not rolled back",
                hint="run it again",
            )
        update = set_branch(table.metadata, MAIN, readable_id)
        table.commit(MAIN, [update], "rolling back to a version that can be read")
        return True

    commit_until_known(
        table.refresh,
        attempt,
        lambda: True if table.metadata.current_snapshot_id == readable_id else None,
        policy=RetryPolicy(attempts=1),
        counters=CommitCounters(),
    )


def _with_index(
    lake: Lake, ref: TableRef, metadata: MetadataJson, report: RepairReport, *, dry_run: bool
) -> RepairReport:
    kind = table_kind(lake.settings, ref.identifier, metadata)
    if kind is not TableKind.MIRROR or metadata.current_snapshot_id is None:
        return report
    if dry_run and report.damaged_file:
        return replace(report, index="it would be looked at after the roll-back")
    why = _why_rebuilt(lake, ref, metadata)
    if not why:
        return report
    is_whole = report.outcome == "nothing is broken"
    if dry_run:
        outcome = "would be repaired" if is_whole else report.outcome
        return replace(report, outcome=outcome, index=f"would be rebuilt: {why}")
    from neve.index.maintain import build

    index = build(lake, ref.identifier, lake.progress)
    return replace(
        report,
        outcome="repaired" if is_whole else report.outcome,
        index=f"rebuilt from {index.files_indexed} files: {why}",
    )


def _why_rebuilt(lake: Lake, ref: TableRef, metadata: MetadataJson) -> str:
    """Say why a mirror needs an index made anew: it lacks one, or its entries are wrong."""
    from neve.index.status import CORRUPT, MISSING, status
    from neve.index.verify import verify

    state = status(lake, ref.identifier)
    if state.state == MISSING:
        rows = summarize(ref.identifier, metadata).rows or 0
        is_used = ROOT_PROPERTY in metadata.properties or rows >= INDEXED_ROWS
        return state.why if is_used else ""
    if state.state == CORRUPT:
        return state.why
    verified = verify(lake, ref.identifier, lake.progress)
    if verified.corrupt:
        return verified.corrupt
    return f"{verified.differences:,} entries were wrong" if verified.differences else ""
