"""How far moves are, for those who only look: no catalog is asked, no engine is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neve.lake.identifier import parse_identifier
from neve.lake.table_ref import TableRef
from neve.move.journal import list_journals, read_journal
from neve.move.move_state import MoveState

if TYPE_CHECKING:
    from neve.config import Settings


def list_moves(
    settings: Settings, patterns: Sequence[str] = (), target: str | None = None
) -> list[dict[str, Any]]:
    """Return how far each move is, from the journals alone.

    Args:
        patterns: tables, globs or namespaces; none of them means all.
        target: only moves to this catalog.
    """
    states = (read_journal(path) for path in list_journals(Path(settings.move.journals)))
    rows = [_status(state) for state in states if state is not None and state.header is not None]
    return [
        row
        for row in rows
        if target in (None, row["target"])
        and (not patterns or any(_is_named(row["table"], each) for each in patterns))
    ]


def _is_named(table: str, pattern: str) -> bool:
    table, pattern = table.replace("`", ""), pattern.replace("`", "")
    return fnmatchcase(table, pattern) or table.startswith(f"{pattern}.")


def _status(state: MoveState) -> dict[str, Any]:
    header = state.header
    if header is None:
        raise TypeError("a journal without a header says nothing")
    source = TableRef(header.source_catalog, parse_identifier(header.source_table))
    counts = state.counts
    return {
        "table": source.name,
        "target": header.target_catalog,
        "location": header.location,
        "stage": state.stage.value if state.stage else None,
        "is_running": state.is_running,
        "files": max(counts.get("files", 0), len(state.copied)),
        "files_copied": len(state.copied),
        "bytes": max(counts.get("bytes", 0), state.copied_bytes),
        "bytes_copied": state.copied_bytes,
        "rewrite_count": state.rewrite_count,
        "rewrite_error": state.rewrite_error,
        "error": state.error,
        "began_at": state.began_at,
        "updated_at": state.changed_at,
    }
