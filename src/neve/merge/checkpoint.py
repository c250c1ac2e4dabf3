"""How far a mirror has come: written into the summary of the very commit that brought it there.

A rollback of the mirror rolls the checkpoint back with the rows. Nothing here is a sequence of
events: those arrive in any order.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from pyiceberg.table.refs import MAIN_BRANCH

from neve.errors import CatalogError
from neve.lake.ancestry import main_ancestors
from neve.lake.horizons import CHECKPOINT as CHECKPOINT
from neve.lake.horizons import NO_SNAPSHOT
from neve.lake.horizons import REJECTED as REJECTED
from neve.lake.horizons import TOMBSTONES as TOMBSTONES

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

BATCH_ID = "neve.merge.batch-id"
BARRIER = "neve.merge.truncated-at"


@dataclass(frozen=True)
class Checkpoint:
    """What of a changelog is in the mirror."""

    table_uuid: str
    # All of this snapshot, and of what came before it, is merged. None: nothing yet.
    snapshot_id: int | None = None
    # A snapshot that is being worked off file by file, in several commits.
    scanning: int | None = None
    # Of its files, in their order, so many are merged, and so many rows of the next one.
    files: int = 0
    offset: int = 0
    # All files of that snapshot are meant, not only those it appended.
    whole: bool = False

    def encode(self) -> str:
        return json.dumps({key: value for key, value in asdict(self).items() if value})


@dataclass(frozen=True)
class MirrorState:
    """A mirror as its newest merge left it."""

    main_id: int
    # None: the commits that would say so are expired, so that nothing can be proven.
    checkpoint: Checkpoint | None
    # The snapshots of the tables beside the mirror; None: they had none yet.
    tombstones_id: int | None = None
    rejected_id: int | None = None
    # The sequence of the newest TRUNCATE, each part as text.
    barrier: tuple[str, ...] | None = None
    # Whether a commit says all this; otherwise it is expired.
    is_proven: bool = True


def mirror_state(metadata: TableMetadata) -> MirrorState:
    """Find the newest merge among the ancestors of `main`; other writers' commits are passed over.

    Raises:
        CatalogError: the table has no snapshot at all, so it was not made by us.
    """
    main = metadata.snapshot_by_name(MAIN_BRANCH)
    if main is None:
        raise CatalogError("the mirror has no snapshot", hint="drop it; it is made again")
    for snapshot in main_ancestors(metadata):
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        if CHECKPOINT in summary:
            barrier = summary.get(BARRIER)
            return MirrorState(
                main.snapshot_id,
                Checkpoint(**json.loads(summary[CHECKPOINT])),
                _snapshot_id(summary.get(TOMBSTONES)),
                _snapshot_id(summary.get(REJECTED)),
                tuple(json.loads(barrier)) if barrier else None,
            )
    return MirrorState(main.snapshot_id, None, is_proven=False)


def snapshot_to_restore(side: TableMetadata, state: MirrorState, named: int | None) -> int | None:
    """Return the snapshot of a table beside the mirror that counts; None: none of its rows do.

    What merges wrote there after the snapshot that the mirror names is of merges that died. What
    others did since stays: a compaction, rows that somebody deleted. A snapshot that is expired
    cannot be restored: then all rows count, which can only be more than the mirror has seen.
    """
    main = side.snapshot_by_name(MAIN_BRANCH)
    if main is None or (named is None and state.is_proven):
        return None
    if named is None or side.snapshot_by_id(named) is None:
        return main.snapshot_id
    for snapshot in main_ancestors(side):
        if snapshot.snapshot_id == named:
            return main.snapshot_id
        if snapshot.summary is not None and snapshot.summary.get(BATCH_ID) is not None:
            break
    return named


def side_summary(tombstones_id: int | None, rejected_id: int | None) -> dict[str, str]:
    """Return what of a mirror's summary names the snapshots of the tables beside it."""
    ids = {TOMBSTONES: tombstones_id, REJECTED: rejected_id}
    return {key: NO_SNAPSHOT if named is None else str(named) for key, named in ids.items()}


def _snapshot_id(text: str | None) -> int | None:
    return None if text is None or text == NO_SNAPSHOT else int(text)
