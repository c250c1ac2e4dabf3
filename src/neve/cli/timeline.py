"""Describe a table for people, with its newest snapshots as a timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from neve.cli.output import JsonOutput, Output, as_record
from neve.errors import UsageError

if TYPE_CHECKING:
    from neve.lake.tables import TableDescription

SHOWN_SNAPSHOTS = 10

_COLUMNS = ("history", "snapshot", "time (UTC)", "operation", "rows", "refs")
_ON_MAIN, _ELSEWHERE = "*", "o"


def print_description(
    output: Output, description: TableDescription, most: int | None = None
) -> None:
    """Print what a table is, and its history.

    Args:
        most: so many snapshots, the newest; None means 10 for a person, all for a program.
    """
    if most is not None and most < 0:
        raise UsageError("--history must not be negative")
    record = as_record(description)
    snapshots: Sequence[Mapping[str, Any]] = record.pop("history")
    if isinstance(output, JsonOutput):
        output.record({**record, "history": snapshots[:most]})
        return
    output.record(record)
    shown = snapshots[: SHOWN_SNAPSHOTS if most is None else most]
    if shown:
        output.show(_COLUMNS, [_line(snapshot) for snapshot in shown])
    if older := len(snapshots) - len(shown):
        output.say(f"… {older:,} older; --history {len(snapshots)} shows all")


def _line(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    where = () if snapshot["is_on_main"] else ("(not on main)",)
    return {
        "history": _ON_MAIN if snapshot["is_on_main"] else _ELSEWHERE,
        "snapshot": str(snapshot["snapshot_id"]),
        # A time without its milliseconds would mean the version before.
        "time (UTC)": f"{snapshot['committed_at']:%Y-%m-%d %H:%M:%S.%f}"[:-3],
        "operation": snapshot["operation"],
        "rows": _rows(snapshot["added_rows"], snapshot["removed_rows"]),
        "refs": ", ".join((*snapshot["refs"], *where)),
    }


def _rows(added: int | None, removed: int | None) -> str:
    if added is None and removed is None:
        return "?"
    texts = [
        f"{sign}{'?' if n is None else n}" for sign, n in (("+", added), ("-", removed)) if n != 0
    ]
    return " ".join(texts) or "0"
