"""Double entry: what a batch has read is what became of it, and what it counts is what it wrote.

Each number is counted in two places that know nothing of each other: events by the metadata of
their files and by the job that decides over them; rows, tombstones and rejected events by that job
and by the files that were written. A batch whose counts differ is not committed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from neve.errors import UnbalancedError

if TYPE_CHECKING:
    from neve.merge.report import Counts

# In the summary of a mirror's commit, as JSON: how many events were read, and what became of them.
EVENTS = "neve.merge.events"


def event_summary(counts: Counts) -> dict[str, str]:
    """Return what of a mirror's summary tells of the batch's events; zeros are left out."""
    numbers = {"read": counts.scanned, **_outcomes(counts)}
    return {EVENTS: json.dumps({what: number for what, number in numbers.items() if number})}


def require_balance(name: str, events: int | None, counts: Counts) -> None:
    """Refuse a batch of which an event is missing, or is counted twice.

    Events read = applied + superseded in the batch + late + repeated + rejected + truncated.

    Args:
        events: how many there are by the metadata of their files; None: it does not tell.

    Raises:
        UnbalancedError: with the numbers.
    """
    read = counts.scanned if events is None else events
    outcomes = _outcomes(counts)
    if read != sum(outcomes.values()):
        told = " + ".join(f"{number} {what}" for what, number in outcomes.items())
        raise _unbalanced(name, f"{read} events were read, and {told} = {sum(outcomes.values())}")


def require_written(name: str, what: str, counted: int, written: int) -> None:
    """Refuse a batch whose files have another number of rows than was counted.

    Raises:
        UnbalancedError: with the numbers.
    """
    if counted != written:
        raise _unbalanced(name, f"{counted} {what} were counted, and {written} are written")


def _outcomes(counts: Counts) -> dict[str, int]:
    return {
        "applied": counts.applied,
        "superseded": counts.superseded,
        "late": counts.late,
        "repeated": counts.repeated,
        "rejected": counts.set_aside,
        "truncated": counts.truncated,
    }


def _unbalanced(name: str, numbers: str) -> UnbalancedError:
    return UnbalancedError(
        f"{name}: the counts of a batch do not add up: {numbers}",
        hint="it is not committed; if it stays so, report it with these numbers",
    )
