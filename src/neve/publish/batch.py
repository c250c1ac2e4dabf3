"""What a batch is called in a table, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from neve.errors import HeldLimitError
from neve.lake.staging import StagedSnapshot
from neve.publish.ranges import BATCH_ID, REJECTED_PREFIX, REJECTED_SNAPSHOT

STAGED_PREFIX = "neve-staged-"
HELD_PREFIX = "neve-held-"
# In the summary of the commit that holds a batch: that commit has its id, and none of its rows.
HELD = "neve.held"


class Outcome(str, Enum):
    """How a batch ended."""

    PUBLISHED = "published"
    HELD = "held"
    # Its range was consumed by another worker, or by this one before it was killed.
    SUPERSEDED = "superseded"


def batch_id_of(staged: StagedSnapshot) -> str:
    """Return the id that all snapshots and refs of a batch share."""
    name = staged.ref.removeprefix(STAGED_PREFIX).removeprefix(HELD_PREFIX).partition("@")[0]
    return staged.summary.get(BATCH_ID) or name


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
