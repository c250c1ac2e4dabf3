"""Which old snapshots an append removes, so that a table's metadata does not grow without bound.

Only snapshots whose data files all later ones have, too: of appends, with nothing but appends after
them. Where files were ever replaced or deleted, expiry is upkeep's, which deletes data files.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neve.lake.append_snapshot import REPLACED
from neve.lake.deletion import may_delete_files
from neve.lake.follower_tags import unread_snapshots
from neve.lake.json_table import delete_after_commit
from neve.lake.kept_moments import RECORD, untagged_versions
from neve.lake.manifest_lists import read_manifest_paths

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from neve.lake.metadata_json import MetadataJson

logger = logging.getLogger(__name__)

# In the summary of a snapshot: the ids of the appends that made it, with commas.
APPEND_ID = "neve.append-id"

# A table property: the sequence numbers of snapshots that were removed here, such as `3-40,42-99`.
# All were appends with nothing but appends after them, so that `main` still has their files: who
# looks for an append that is not there need not fear that its snapshot was one of them.
REMOVED_APPENDS = "neve.removed-appends"

_RANGE = re.compile(r"(?<![^,])(\d+)-(\d+)(?![^,])")
# Ranges of sequence numbers that a property names; the oldest go. Snapshots that stay in between,
# such as those with a tag, begin a new one.
_MOST_RANGES = 20
# A table may have a fiftieth more than the limit; then a commit removes as many.
_SHARE_KEPT_LONGER = 50
_MOST_AT_ONCE = 10
# Iceberg's own: how long snapshots are kept that somebody else has made.
_MAX_AGE = "history.expire.max-snapshot-age-ms"
_DEFAULT_MAX_AGE_MS = 432_000_000
# Of snapshots that are outside of the history of `main`, whose manifests are compared.
_MOST_COMPARED = 16


@dataclass(frozen=True)
class SnapshotLimit:
    """How many snapshots the history of `main` may have before appends remove the oldest.

    Args:
        most: None: none is removed here.
        follow_horizon_seconds: what a follower has not read stays, up to this age.
        keep_hourly_seconds, keep_daily_seconds: for so long the versions at full hours and at
            midnights stay, of a table that has tags of upkeep's: it makes theirs, and drops them.
    """

    most: int | None = 500
    follow_horizon_seconds: float = 7 * 86_400.0
    keep_hourly_seconds: float = 0.0
    keep_daily_seconds: float = 0.0


def snapshots_to_remove(metadata: MetadataJson, limit: SnapshotLimit, now: float) -> list[int]:
    """Return the snapshots that an append may remove, the oldest first; reads nothing."""
    if limit.most is None or len(metadata.snapshots) < limit.most:
        return []
    history = main_history(metadata)
    # The append itself is one more.
    excess = len(history) + 1 - limit.most
    # Not one at a time: on a REST catalog, the table is read before each commit that removes some.
    if excess <= limit.most // _SHARE_KEPT_LONGER:
        return []
    age_ms = int(metadata.properties.get(_MAX_AGE, _DEFAULT_MAX_AGE_MS))
    candidates = []
    for snapshot in reversed(history[-min(excess, len(history) - 1) :]):
        # What others have made may say something that they still need: they, or Iceberg, expire it.
        is_ours = APPEND_ID in (snapshot.get("summary") or {})
        if not is_ours and snapshot["timestamp-ms"] > now * 1000 - age_ms:
            break
        candidates.append(snapshot["snapshot-id"])
    if not candidates or any(_operation(snapshot) != "append" for snapshot in history):
        return []
    needed = _needed(metadata, limit, now)
    return [each for each in candidates if each not in needed][:_MOST_AT_ONCE]


def _needed(metadata: MetadataJson, limit: SnapshotLimit, now: float) -> set[int]:
    """Return the snapshots that somebody still needs, however many there are."""
    horizon_ms = int((now - limit.follow_horizon_seconds) * 1000)
    needed = set(metadata.refs.values()) | unread_snapshots(metadata, horizon_ms)
    needed |= {each["snapshot-id"] for each in metadata.document.get("statistics") or ()}
    if RECORD in metadata.properties:
        untagged = untagged_versions(
            metadata, limit.keep_hourly_seconds, limit.keep_daily_seconds, now
        )
        needed |= {snapshot_id for _, snapshot_id in untagged}
    return needed


def removed_appends(metadata: MetadataJson) -> list[range]:
    """Return the sequence numbers of snapshots that appends have removed, as far as known."""
    ranges = _RANGE.findall(metadata.properties.get(REMOVED_APPENDS, ""))
    return [range(int(first), int(last) + 1) for first, last in ranges]


def with_removed(metadata: MetadataJson, removed: Sequence[int]) -> str:
    """Return the property of removed appends when some more are removed."""
    numbers = sorted(metadata.snapshots[each].get("sequence-number") or 0 for each in removed)
    ranges = removed_appends(metadata)
    for number in numbers:
        if ranges and number == ranges[-1].stop:
            ranges[-1] = range(ranges[-1].start, number + 1)
        else:
            ranges.append(range(number, number + 1))
    return ",".join(f"{each.start}-{each.stop - 1}" for each in ranges[-_MOST_RANGES:])


def without_doubt(metadata: MetadataJson, removed: Collection[int]) -> list[int]:
    """Return those of some snapshots whose files `main` certainly has: see `REMOVED_APPENDS`."""
    if metadata.format_version < 2:
        return []
    certain = []
    for snapshot in main_history(metadata):
        if _operation(snapshot) != "append":
            break
        if snapshot["snapshot-id"] in removed:
            certain.append(snapshot["snapshot-id"])
    return certain


def main_history(metadata: MetadataJson) -> Sequence[Mapping[str, Any]]:
    """Return the current snapshot and its ancestors as far as they are kept, the newest first."""
    return metadata.main_history


def delete_unreached(io: FileIO, table: str, before: MetadataJson, removed: Sequence[int]) -> None:
    """Delete the manifest lists of removed snapshots, and manifests that only they named.

    Never data files, and nothing where the table's properties forbid it. Called once the commit is
    known to be applied. What cannot be read or deleted is logged and left.

    Args:
        before: the metadata that still has the removed snapshots.
    """
    if not may_delete_files(before.properties):
        return
    try:
        manifests = _unreached_manifests(io, before, set(removed))
    except Exception as error:  # noqa: BLE001 - the commit is applied, whatever happens here
        logger.warning("%s: manifests of removed snapshots are left: %s", table, error)
        manifests = set()
    lists = {before.snapshots[each]["manifest-list"] for each in removed}
    logger.debug(
        "%s: %d snapshots are removed, and %d manifests", table, len(lists), len(manifests)
    )
    delete_after_commit(io, table, lists | manifests, "manifest")


def _unreached_manifests(io: FileIO, before: MetadataJson, removed: set[int]) -> set[str]:
    """Return the manifests of removed snapshots that no retained snapshot has.

    The descendants of a snapshot that replaced a manifest never have it again. Any other snapshot,
    such as an older one that a tag names, may have it.
    """
    history = main_history(before)
    unreached = set()
    for position, snapshot in enumerate(history):
        if snapshot["snapshot-id"] not in removed or position == 0:
            continue
        child = history[position - 1]
        if (child.get("summary") or {}).get(REPLACED) == "0":
            continue
        manifests = _manifests(io, snapshot) - _manifests(io, child)
        others = _others(before, {each["snapshot-id"] for each in history[:position]}, removed)
        if manifests and len(others) <= _MOST_COMPARED:
            unreached |= manifests.difference(*(_manifests(io, other) for other in others))
    return unreached


def _others(metadata: MetadataJson, later: set[int], removed: set[int]) -> list[Mapping[str, Any]]:
    """Return the retained snapshots that do not descend from any of `later`."""
    descendants = set(later)
    others = []
    # Writers add to the end, so that a parent comes before its children.
    for snapshot_id, snapshot in metadata.snapshots.items():
        if snapshot.get("parent-snapshot-id") in descendants:
            descendants.add(snapshot_id)
        if snapshot_id not in descendants and snapshot_id not in removed:
            others.append(snapshot)
    return others


def _manifests(io: FileIO, snapshot: Mapping[str, Any]) -> set[str]:
    return read_manifest_paths(io, snapshot["manifest-list"])


def _operation(snapshot: Mapping[str, Any]) -> str | None:
    return (snapshot.get("summary") or {}).get("operation")
