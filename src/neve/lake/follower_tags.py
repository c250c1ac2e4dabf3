"""The tags that are followers' positions, and what followers have yet to read.

The tag `neve_follow_<name>` keeps only its own snapshot from being expired; `oldest_unread_ms` says
which snapshots after it somebody still has to read. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from neve.errors import UsageError
from neve.lake.metadata_json import MAIN, MetadataJson

TAG_PREFIX = "neve_follow_"
# Set in the commit that moves the tag: which move it was, and what the follower does.
PROPERTY_PREFIX = "neve.follow."

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class FollowerTag:
    """A follower as the table's refs and properties have it.

    Args:
        branch: the branch whose commits it reads.
        target: the table that it keeps by `to_table`; None: a consumer of its own.
    """

    name: str
    snapshot_id: int
    branch: str = MAIN
    target: str | None = None


def check_name(name: str) -> str:
    """Return the tag of a follower. Raises UsageError: it cannot be part of a ref's name."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"'{name}' cannot name a follower",
            hint="use at most 64 letters, digits, _, - and ., beginning with a letter or a digit",
        )
    return f"{TAG_PREFIX}{name}"


def follower_tag(metadata: MetadataJson, name: str) -> FollowerTag | None:
    """Return a follower of a table; None: it has committed nothing yet, or was dropped."""
    snapshot_id = metadata.refs.get(f"{TAG_PREFIX}{name}")
    if snapshot_id is None:
        return None
    try:
        described = json.loads(metadata.properties.get(f"{PROPERTY_PREFIX}{name}", "{}"))
    except ValueError:
        described = {}
    if not isinstance(described, dict):
        described = {}
    return FollowerTag(name, snapshot_id, described.get("branch") or MAIN, described.get("target"))


def follower_tags(metadata: MetadataJson) -> list[FollowerTag]:
    """Return all followers of a table, by name."""
    names = sorted(tag.removeprefix(TAG_PREFIX) for tag in metadata.refs if _is_follower(tag))
    tags = (follower_tag(metadata, name) for name in names)
    return [tag for tag in tags if tag is not None]


def oldest_unread_ms(metadata: MetadataJson) -> dict[str, int]:
    """Return, for each follower that is behind, the least timestamp of the snapshots it must read.

    The least one of all: a published snapshot keeps the time of its staging, so that times do not
    always rise along a branch, and Iceberg expires all that comes before the first one too old. A
    follower whose position is no ancestor any more has nothing to read.
    """
    oldest = {}
    for tag in follower_tags(metadata):
        unread = unread_of(metadata, tag)
        if unread:
            oldest[tag.name] = min(int(snapshot["timestamp-ms"]) for snapshot in unread)
    return oldest


def unread_snapshots(metadata: MetadataJson, since_ms: int) -> set[int]:
    """Return the snapshots that some follower must still read, but for those before a time."""
    return {
        snapshot["snapshot-id"]
        for tag in follower_tags(metadata)
        for snapshot in unread_of(metadata, tag) or ()
        if snapshot["timestamp-ms"] >= since_ms
    }


def _is_follower(tag: str) -> bool:
    return tag.startswith(TAG_PREFIX) and bool(_NAME.fullmatch(tag.removeprefix(TAG_PREFIX)))


def unread_of(metadata: MetadataJson, tag: FollowerTag) -> Sequence[Mapping[str, Any]] | None:
    """Return the snapshots after a position, the newest first; None: its line does not hold it."""
    unread = []
    snapshot_id = metadata.refs.get(tag.branch)
    while snapshot_id is not None and snapshot_id != tag.snapshot_id:
        snapshot = metadata.snapshots.get(snapshot_id)
        if snapshot is None:
            return None
        unread.append(snapshot)
        snapshot_id = snapshot.get("parent-snapshot-id")
    return None if snapshot_id is None else unread
