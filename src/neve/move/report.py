"""What is told of a move: what it would do, what it did, and whether the table is whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from neve.errors import NeveError


@dataclass(frozen=True)
class PlanReport:
    """What moving a table would do.

    Args:
        files: how many there are of each kind.
        copy_files: those that are not at the target yet.
        rewrite_count: files that name paths, and so are written anew.
        existing: what becomes of the table that the target has; None: it has none.
        left_behind: what does not move, and how to finish it first.
        notes: what else is worth knowing.
        blocked_by: why the table cannot be moved; nothing would be written.
    """

    table: str
    target: str
    location: str | None = None
    format_version: int | None = None
    snapshots: int = 0
    refs: tuple[str, ...] = ()
    files: Mapping[str, int] = field(default_factory=dict)
    bytes: int = 0
    copy_files: int = 0
    copy_bytes: int = 0
    rewrite_count: int = 0
    existing: str | None = None
    left_behind: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    blocked_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class MoveReport:
    """What became of a table.

    Args:
        outcome: registered, extended, replaced, already there, or failed.
        metadata_location: of the table that is registered at the target.
        rows: of all data files that retained snapshots name, deleted rows too; verified.
        deletes: deleted rows that files of deletes name; verified.
        files_skipped: that were at the target already.
    """

    table: str
    target: str
    outcome: str
    location: str | None = None
    metadata_location: str | None = None
    snapshots: int = 0
    rows: int = 0
    deletes: int = 0
    files_copied: int = 0
    bytes_copied: int = 0
    files_skipped: int = 0
    rewrite_count: int = 0
    left_behind: tuple[str, ...] = ()
    seconds: float = 0.0
    error: NeveError | None = None


@dataclass(frozen=True)
class CheckReport:
    """Whether a table that was moved before is whole.

    Args:
        outcome: whole, damaged or failed.
        rows: of all data files that retained snapshots name, deleted rows too.
        problems: which file is wrong, and how.
    """

    table: str
    target: str
    outcome: str
    files: int = 0
    snapshots: int = 0
    rows: int = 0
    problems: tuple[str, ...] = ()
    error: NeveError | None = None
