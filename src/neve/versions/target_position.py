"""How far a follower has kept a table: written into the very commit that brought it there. Pure.

The summary of that commit is the truth, so that a rollback of the table rolls the position back.
A table property is its copy, set in the same swap, for when snapshots have expired.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from neve.errors import CorruptionError
from neve.lake.first_snapshot import is_first_snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neve.lake.first_snapshot import ReadFile
    from neve.lake.metadata_json import MetadataJson

# In summaries, where one commit has one position.
SUMMARY = "neve.follow.position"
# In properties, with the follower's name.
PROPERTY_PREFIX = "neve.follow-position."


@dataclass(frozen=True)
class Position:
    """What of the followed table is in the other one.

    Args:
        snapshot_id: all changes up to it.
        schema_id: the schema of that snapshot.
        batch_id: tells the batch from every other one, also from an equal one of another process.
        sequence_number: of the snapshot that has it; 0 where it is not known.
    """

    follower: str
    table_uuid: str
    snapshot_id: int
    schema_id: int
    batch_id: str
    sequence_number: int = 0

    def encode(self) -> str:
        return json.dumps(asdict(self))

    def summary(self) -> dict[str, str]:
        return {SUMMARY: self.encode()}

    def properties(self, sequence_number: int) -> dict[str, str]:
        copy = replace(self, sequence_number=sequence_number)
        return {f"{PROPERTY_PREFIX}{self.follower}": copy.encode()}


def find_position(
    metadata: MetadataJson, follower: str, read: ReadFile | None = None
) -> Position | None:
    """Return the newest position of a follower among the ancestors of `main`.

    Commits of other writers are passed over. Where snapshots have expired before one was found,
    the copy counts, unless the ancestors show that its commit was rolled back.

    Args:
        read: reads a file of the table, to prove which snapshot is the first.
    """
    copy = _decode(metadata.properties.get(f"{PROPERTY_PREFIX}{follower}"), follower)
    snapshot_id = metadata.current_snapshot_id
    while snapshot_id is not None:
        snapshot = metadata.snapshots.get(snapshot_id)
        if snapshot is None:
            return copy
        position = position_of(snapshot.get("summary") or {}, follower)
        if position is not None:
            return position
        # Sequence numbers rise along a branch, so that the copy's commit would have come before.
        if copy is not None and (snapshot.get("sequence-number") or 0) < copy.sequence_number:
            copy = None
        snapshot_id = snapshot.get("parent-snapshot-id")
        # PyIceberg's expiry clears the parent of the oldest snapshot that it keeps.
        if snapshot_id is None and not is_first_snapshot(metadata, snapshot, read):
            return copy
    return None


def position_of(summary: Mapping[str, str], follower: str) -> Position | None:
    """Return the position that a commit brought a follower to; None: it is not that follower's."""
    return _decode(summary.get(SUMMARY), follower)


def _decode(text: str | None, follower: str) -> Position | None:
    if text is None:
        return None
    try:
        position = Position(**json.loads(text))
    except (ValueError, TypeError) as error:
        raise CorruptionError(
            f"the position of follower {follower} cannot be read: {text}",
            hint="drop the kept table and the follower to fill it from the beginning",
        ) from error
    return position if position.follower == follower else None
