"""A changelog replayed slowly and obviously: the mirror that every merge must arrive at.

An event is a dict: `keys` (a tuple), `sequence` (anything ordered, or a tuple of such), `op` (one
of the five below) and `columns` (the row by column name; the keys among them).

- The highest sequence wins for each key, whatever the order of arrival. At equal sequence a
  snapshot read loses against any other upsert, and every upsert against a delete. Between two
  upserts of one class the greater `canonical_json` of the columns wins.
- A delete stays in force against everything older that comes later.
- A TRUNCATE, which has no keys, removes every row of a lower sequence, come or yet to come; an
  upsert of the same sequence survives.
- Where a value is `unchanged`, the column keeps the last value sent before it, in the order above,
  since the key was last deleted or truncated away; NULL when there is none.
- NULL in a key or a sequence, or an unknown operation: rejected, and without effect.

So the order of arrival changes nothing but the order of `rejected`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any, NamedTuple

INSERT = "insert"
UPDATE = "update"
DELETE = "delete"
TRUNCATE = "truncate"
SNAPSHOT_READ = "snapshot-read"

DEBEZIUM_OPERATIONS = {
    "r": SNAPSHOT_READ,
    "c": INSERT,
    "u": UPDATE,
    "d": DELETE,
    "t": TRUNCATE,
}

UNKNOWN_OPERATION = "unknown operation"
NULL_SEQUENCE = "NULL sequence"
NULL_KEY = "NULL key"

_RANKS = {SNAPSHOT_READ: 0, INSERT: 1, UPDATE: 1, DELETE: 2}

Event = dict[str, Any]
Row = dict[str, Any]


class Rejected(NamedTuple):
    event: Event
    reason: str


class Replay(NamedTuple):
    """The rows by key, and the events that had no effect, in order of arrival."""

    mirror: dict[tuple[Any, ...], Row]
    rejected: list[Rejected]


def replay(
    events: Iterable[Event],
    *,
    unchanged: Any = None,
    content: Callable[[Row], Any] | None = None,
) -> Replay:
    """Replay events, given in order of arrival.

    Args:
        unchanged: the marker of values that a source did not send; None for a source without one.
        content: what decides between upserts of one class and sequence instead of the JSON.
    """
    rejected: list[Rejected] = []
    histories: dict[tuple[Any, ...], list[Event]] = defaultdict(list)
    barrier = None
    for event in events:
        if reason := _fault(event):
            rejected.append(Rejected(event, reason))
        elif event["op"] != TRUNCATE:
            histories[event["keys"]].append(event)
        elif barrier is None or event["sequence"] > barrier:
            barrier = event["sequence"]
    mirror = {}
    for keys, history in histories.items():
        alive = [event for event in history if barrier is None or event["sequence"] >= barrier]
        alive.sort(key=lambda event: _order(event, content or canonical_json))
        row = _fold(alive, unchanged)
        if row is not None:
            mirror[keys] = row
    return Replay(mirror, rejected)


def changelog_event(
    row: Mapping[str, Any],
    *,
    keys: Sequence[str],
    sequence: str | Sequence[str],
    op: str = "op",
    operations: Mapping[str, str] = DEBEZIUM_OPERATIONS,
    leave_out: Collection[str] = (),
) -> Event:
    """Make the event of one changelog row; the sequence stays among the columns, as in the mirror.

    Args:
        sequence: the column, or several of them, the first deciding first.
        leave_out: further columns that the mirror does not have.
    """
    unwanted = {op, *leave_out}
    ordering = row[sequence] if isinstance(sequence, str) else tuple(row[name] for name in sequence)
    return {
        "keys": tuple(row[name] for name in keys),
        "sequence": ordering,
        "op": operations.get(row[op], row[op]),
        "columns": {name: value for name, value in row.items() if name not in unwanted},
    }


def canonical_json(row: Row) -> str:
    """Write a row down so that equal rows are equal texts, ordered by code point (as UTF-8 bytes).

    Columns by name, NULL as null, no spaces, nothing escaped that need not be. Decimals as text
    with their scale, timestamps as ISO 8601 with six digits (in UTC where there is a zone), bytes
    in hex.
    """
    return json.dumps(
        row, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=_plain
    )


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        in_utc = value.astimezone(timezone.utc) if value.tzinfo else value
        return in_utc.isoformat(timespec="microseconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"no canonical form for {type(value).__name__}")


def _fault(event: Event) -> str | None:
    if event["op"] not in (TRUNCATE, *_RANKS):
        return UNKNOWN_OPERATION
    if _has_null(event["sequence"]):
        return NULL_SEQUENCE
    if event["op"] != TRUNCATE and _has_null(event["keys"]):
        return NULL_KEY
    return None


def _has_null(value: Any) -> bool:
    return None in value if isinstance(value, tuple) else value is None


def _order(event: Event, content: Callable[[Row], Any]) -> tuple[Any, ...]:
    # Deletes of one sequence are all alike; what they carry need not be comparable.
    decider = "" if event["op"] == DELETE else content(event["columns"])
    return (event["sequence"], _RANKS[event["op"]], decider)


def _fold(history: list[Event], unchanged: Any) -> Row | None:
    row: Row | None = None
    for event in history:
        if event["op"] == DELETE:
            row = None
            continue
        before = row or {}
        row = {
            name: before.get(name) if unchanged is not None and value == unchanged else value
            for name, value in event["columns"].items()
        }
    return row
