"""What `neve maintain --dry-run` prints: each group of files, snapshot, tag and orphan, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neve.cli.output import as_record
from neve.sizes import size_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from neve.api import MaintenancePlan
    from neve.cli.output import Output
    from neve.upkeep.plan import Action

# Of each list, so many lines are shown; --json has all.
MOST_LINES = 20

_COLUMNS = (
    *("table", "action", "why", "effect", "files", "bytes", "partition", "deferred", "error"),
    *("paths", "snapshots", "orphans", "is_complete", "note"),
)
_SHOWN_ACTIONS = ("action", "partition", "files", "size", "why", "effect")
_SHOWN_SNAPSHOTS = ("snapshot", "tag", "what happens", "why")
_SHOWN_ORPHANS = ("orphan", "size", "written at")


def show_plans(output: Output, plans: Sequence[MaintenancePlan]) -> None:
    """Show people what is to be done table by table; programs get all of it."""
    output.data(_COLUMNS, [row for plan in plans for row in _records(plan)])
    if not any(plan.actions or plan.deferred or plan.error for plan in plans):
        output.say("Nothing is to be done.")
    for plan in plans:
        _show_actions(output, plan.table, _action_rows(plan))
        for note in plan.notes:
            output.say(f"{plan.table}: {note}")
        if plan.error:
            output.say(f"{plan.table} is left alone: {plan.error}")


def _show_actions(output: Output, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    # A table may have thousands of groups: what else is done is to be seen all the same.
    groups, others = ([row for row in rows if bool(row["paths"]) is has] for has in (True, False))
    for some in filter(None, (groups, others)):
        output.say(f"\n{table}")
        show_some(output, _SHOWN_ACTIONS, [_shown_action(row) for row in some])
    for row in others:
        if row["snapshots"]:
            output.say(f"\n{table}: {row['action']}")
            show_some(output, _SHOWN_SNAPSHOTS, [_shown(each) for each in row["snapshots"]])
        if row["orphans"]:
            output.say(f"\n{table}: {row['action']}, {row['why']}")
            show_some(output, _SHOWN_ORPHANS, [orphan_row(each) for each in row["orphans"]])
        if not row["is_complete"]:
            output.say("The search stopped at so many: the next run finds the others.")


def show_some(
    output: Output,
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    most: int = MOST_LINES,
) -> None:
    """Show the first rows, of the columns that say something, and how many more there are."""
    shown = rows[:most]
    output.show([each for each in columns if any(row[each] for row in shown)], shown)
    if len(rows) > most:
        output.say(f"and {len(rows) - most:,} more: --json names all {len(rows):,}")


def orphan_row(orphan: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file that no snapshot names as people are shown it."""
    return {
        "orphan": orphan["path"],
        "size": size_text(orphan["size"]),
        "written at": f"{orphan['modified']:%Y-%m-%d %H:%M:%S}",
    }


def _records(plan: MaintenancePlan) -> list[dict[str, Any]]:
    rows = _action_rows(plan)
    rows += [{"table": plan.table, "note": note} for note in plan.notes]
    if plan.error:
        rows.append({"table": plan.table, "bytes": 0, "error": plan.error})
    return rows


def _action_rows(plan: MaintenancePlan) -> list[dict[str, Any]]:
    return [
        {
            "table": action.table,
            "action": action.step.value,
            "why": action.why,
            "effect": action.effect if is_kept else "deferred: beyond the budget",
            "files": action.files,
            "bytes": action.bytes,
            "partition": action.partition,
            "deferred": not is_kept,
            "error": None,
            "paths": action.group.paths if action.group else (),
            "snapshots": _snapshots(action),
            "orphans": [as_record(each) for each in action.orphans.files] if action.orphans else [],
            "is_complete": action.orphans.plan.is_complete if action.orphans else True,
        }
        for actions, is_kept in ((plan.actions, True), (plan.deferred, False))
        for action in actions
    ]


def _snapshots(action: Action) -> list[dict[str, Any]]:
    """Return what a retention removes and tags, each with its reason."""
    if action.versions is None:
        return []
    plan = action.versions.plan
    rows = [_row("expires", each.snapshot_id, "", each.reason) for each in plan.expire]
    rows += [
        _row("tag is dropped", each.snapshot_id, each.tag, each.reason) for each in plan.drop_tags
    ]
    rows += [
        _row(
            "is tagged",
            each.snapshot_id,
            each.tag,
            f"the version of that time is kept until {each.until:%Y-%m-%d %H:%M} UTC",
        )
        for each in plan.new_tags
    ]
    return rows


def _row(effect: str, snapshot_id: int, tag: str, reason: str) -> dict[str, Any]:
    return {"snapshot_id": snapshot_id, "tag": tag or None, "effect": effect, "reason": reason}


def _shown_action(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "files": row["files"] or "",
        "size": size_text(row["bytes"]) if row["bytes"] else "",
    }


def _shown(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "snapshot": str(snapshot["snapshot_id"]),
        "tag": snapshot["tag"] or "",
        "what happens": snapshot["effect"],
        "why": snapshot["reason"],
    }
