"""What is worth a line to whoever reads a merge's report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neve.merge.batch import BatchWork
    from neve.merge.plan import Look
    from neve.merge.report import Counts


def look_notes(name: str, tables: Look) -> list[str]:
    notes = [tables.pending.note] if tables.pending.note else []
    drift = tables.drift
    for what, columns in (("added", drift.added), ("widened", drift.widened)):
        if columns and tables.mirror is not None:
            notes.append(f"{name}: columns {what}: {', '.join(columns)}")
    notes += [f"{name}: column {old} renamed to {new}" for old, new in drift.renamed]
    return notes + [
        f"{name}: {column.reason}; such rows are set aside ({column.remedy})"
        for column in drift.incompatible
    ]


def batch_notes(name: str, counts: Counts) -> Iterator[str]:
    if counts.duplicate_keys:
        yield (
            f"{name}: {counts.duplicate_keys} rows had a key of another row; somebody else must "
            "have written them"
        )
    if counts.ties:
        yield f"{name}: {counts.ties} keys have different events of the same sequence"


def retry_notes(work: BatchWork) -> list[str]:
    if work.retried is None:
        return []
    accepted, remaining = work.retried.accepted.count(), work.retried.remaining.count()
    name = ".".join(work.spec.rejected)
    return [f"{name}: {accepted} events can be taken now, {remaining} cannot and stay"]
