"""What a batch is called in a table, where it is there, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from neve.errors import HeldLimitError
from neve.publish.contains import SOURCE_SNAPSHOT_ID
from neve.publish.ranges import BATCH_ID, REJECTED_PREFIX, REJECTED_SNAPSHOT

if TYPE_CHECKING:
    from neve.lake.staged_snapshot import StagedSnapshot
    from neve.lake.staging import StagingTable

STAGED_PREFIX = "neve-staged-"
HELD_PREFIX = "neve-held-"
# In the summary of the commit that holds a batch: that commit has its id, and none of its rows.
HELD = "neve.held"


class Outcome(str, Enum):
    """How a batch ended."""

    PUBLISHED = "published"
    HELD = "held"
    # Its range, or copies of its requests, were consumed by another worker, or by this one before
    # it was killed.
    SUPERSEDED = "superseded"
    # Its counts do not add up: it stays staged, and its segments stay in the buffer.
    UNBALANCED = "unbalanced"


def batch_id_of(staged: StagedSnapshot) -> str:
    """Return the id that all snapshots and refs of a batch share."""
    name = staged.ref.removeprefix(STAGED_PREFIX).removeprefix(HELD_PREFIX).partition("@")[0]
    return staged.summary.get(BATCH_ID) or name


def staged_refs(table: StagingTable, staged: StagedSnapshot) -> tuple[str, ...]:
    """Name the refs that keep a batch staged, as the table was read last."""
    return _refs(table, STAGED_PREFIX, batch_id_of(staged))


def all_refs(table: StagingTable, staged: StagedSnapshot) -> tuple[str, ...]:
    """Name all refs of a batch: earlier versions left some that end in `@` and a number."""
    return (*staged_refs(table, staged), *_refs(table, HELD_PREFIX, batch_id_of(staged)))


def _refs(table: StagingTable, prefix: str, batch_id: str) -> tuple[str, ...]:
    return tuple(
        present.ref for present in table.staged(prefix) if batch_id_of(present) == batch_id
    )


def is_on_main(table: StagingTable, staged: StagedSnapshot) -> bool:
    """Tell whether the history of `main`, as far as it is kept, has this batch's rows."""
    batch_id = batch_id_of(staged)
    # Earlier versions staged a batch again under such a ref: `main` may have the first staging.
    since = 0 if "@" in staged.ref else staged.sequence_number
    return any(
        summary.get(BATCH_ID) == batch_id and HELD not in summary
        for summary in table.main_summaries(since)
    )


def is_cherry_picked(table: StagingTable, staged: StagedSnapshot) -> bool:
    """Tell whether somebody brought a batch's rows to `main` with Iceberg's procedure."""
    staged_id = str(staged.snapshot_id)
    later = table.main_summaries(staged.sequence_number)
    return any(summary.get(SOURCE_SNAPSHOT_ID) == staged_id for summary in later)


def held_limit_error(table: str, held: int) -> HeldLimitError:
    """Say that a table takes no further batch until a person decides on those that are held."""
    return HeldLimitError(
        f"{table}: a batch failed its audits, and {held} are held already: the table stops until "
        "some are published or discarded",
        hint=f"see: neve staged list {table}; then: neve staged publish|discard {table} --all; "
        "or raise consolidate.max_held",
    )


def rejected_property(staged: StagedSnapshot) -> dict[str, str]:
    """Return the property that names the rows which a batch's audits set aside, if there are."""
    rejected_id = staged.summary.get(REJECTED_SNAPSHOT)
    return {f"{REJECTED_PREFIX}{batch_id_of(staged)}": rejected_id} if rejected_id else {}


def own_entries(summary: Mapping[str, str]) -> dict[str, str]:
    """Return our entries of a summary; the rest counts files and is made anew."""
    return {key: value for key, value in summary.items() if key.startswith("neve.")}
