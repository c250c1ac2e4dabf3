"""Move a tag of a table by a compare-and-set on the tag itself: any format version, no JVM.

Other writers' commits are no conflict; another move of the same tag is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve.errors import NotFoundError
from neve.lake.commit_loop import CommitCounters, RetryPolicy, commit_until_known
from neve.lake.json_table import json_table
from neve.lake.metadata_json import MetadataJson
from neve.lake.metadata_updates import (
    Json,
    remove_properties,
    remove_ref,
    set_properties,
    set_tag,
)
from neve.lake.profile import profile_named

if TYPE_CHECKING:
    from neve.lake.lake import Lake
    from neve.lake.table_ref import TableRef

# Without it, a tag lives as long as the table property history.expire.max-ref-age-ms says.
_FOR_EVER_MS = 2**63 - 1


@dataclass(frozen=True)
class TagMove:
    """Where a tag goes, and a table property that tells this move from any other one.

    Args:
        expected_id: the snapshot it is at; None: there is no such tag.
        snapshot_id: the snapshot it moves to; None: it is removed, and the property with it.
        mark: the property's name and its value, which no other move has.
    """

    tag: str
    expected_id: int | None
    snapshot_id: int | None
    mark: tuple[str, str]

    def is_applied(self, metadata: MetadataJson) -> bool:
        if self.snapshot_id is None:
            return self.tag not in metadata.refs
        name, value = self.mark
        return metadata.properties.get(name) == value

    def is_possible(self, metadata: MetadataJson) -> bool:
        return metadata.refs.get(self.tag) == self.expected_id

    def updates(self) -> list[Json]:
        name, value = self.mark
        if self.snapshot_id is None:
            return [remove_ref(self.tag), remove_properties([name])]
        return [set_tag(self.tag, self.snapshot_id, _FOR_EVER_MS), set_properties({name: value})]


def move_tag(
    lake: Lake, ref: TableRef, table_uuid: str, move: TagMove, retry: RetryPolicy | None = None
) -> bool:
    """Move or remove a tag; False: it is not where it was expected, and nothing was changed.

    Atomic; idempotent for the same mark.

    Raises:
        NotFoundError: the table was dropped, or dropped and created again.
        ConflictError: other writers were first in every attempt; nothing was changed.
        UnknownOutcomeError: the answer was lost, and the table does not show the move yet.
    """
    profile = profile_named(lake.settings, ref.catalog)
    table = json_table(profile, lake.catalog(ref.catalog), ref.identifier, table_uuid)

    def attempt() -> bool:
        if move.is_applied(table.metadata):
            return True
        if not move.is_possible(table.metadata):
            return False
        if move.snapshot_id is not None and move.snapshot_id not in table.metadata.snapshots:
            raise NotFoundError(
                f"{ref.name}: snapshot {move.snapshot_id} has expired, so that no tag can name it",
                hint="begin at a version that is still there: neve describe " + ref.name,
            )
        table.commit(move.tag, move.updates(), f"moving tag {move.tag}")
        return True

    return commit_until_known(
        table.refresh,
        attempt,
        lambda: True if move.is_applied(table.metadata) else None,
        policy=retry or RetryPolicy(),
        counters=CommitCounters(),
    )
