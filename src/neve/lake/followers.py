"""Followers of a table, as its metadata names them: where they are, and how far behind."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from neve.errors import ConflictError, NeveError, NotFoundError
from neve.lake.follower_tags import PROPERTY_PREFIX, check_name, follower_tags, unread_of
from neve.lake.identifier import name_of
from neve.lake.metadata_json import MetadataJson
from neve.observe.failures import failure_of

if TYPE_CHECKING:
    from neve.lake.lake import Lake

logger = logging.getLogger(__name__)

OnFailure = Callable[[str, NeveError], None]

_ROW_COUNTS = ("added-records", "deleted-records", "added-position-deletes")


@dataclass(frozen=True)
class FollowerState:
    """How far a follower is behind its table.

    Args:
        at: since when the snapshot at its position was current.
        lag_commits: commits it has not read; None: its position is no ancestor of the branch any
            more, or snapshots in between have expired.
        lag_seconds: the age of the oldest of them.
        lag_rows: rows that they added and deleted, at most; None: their summaries do not say it.
    """

    table: str
    name: str
    snapshot_id: int
    at: datetime
    branch: str
    target: str | None
    lag_commits: int | None
    lag_seconds: float | None
    lag_rows: int | None


def follower_states(table: str, metadata: MetadataJson, now: float) -> list[FollowerState]:
    """Return how far each follower of a table is behind."""
    published = _published(metadata)
    states = []
    for tag in follower_tags(metadata):
        unread = unread_of(metadata, tag)
        oldest_ms = min((_time_ms(each, published) for each in unread or ()), default=None)
        seconds = 0.0 if oldest_ms is None else max(0.0, now - oldest_ms / 1000)
        position = metadata.snapshots[tag.snapshot_id]
        states.append(
            FollowerState(
                table,
                tag.name,
                tag.snapshot_id,
                datetime.fromtimestamp(_time_ms(position, published) / 1000, timezone.utc),
                tag.branch,
                tag.target,
                None if unread is None else len(unread),
                None if unread is None else seconds,
                None if unread is None else _rows(unread),
            )
        )
    return states


def list_followers(
    lake: Lake, table: str | None = None, on_failure: OnFailure | None = None
) -> list[FollowerState]:
    """Return the followers of a table, or of all tables of the configured catalog.

    Args:
        on_failure: is told of each table that cannot be read, whose followers nobody knows; None:
            the log is.

    Raises:
        NotFoundError: there is no such table.
    """
    lake.profile.require_catalog("listing followers")
    now = time.time()
    if table is not None:
        ref = lake.ref(table)
        metadata = lake.reader(ref.catalog).read_document(ref.identifier)
        return follower_states(ref.name, metadata, now)
    reader = lake.reader()
    tell, states = on_failure or _log_failure, list[FollowerState]()
    for identifier, loaded in reader.read_all(reader.list_tables()).items():
        name = name_of(identifier)
        try:
            if isinstance(loaded, MetadataJson):
                states += follower_states(name, loaded, now)
            elif loaded is not None:
                tell(name, loaded)
        except Exception as error:  # noqa: BLE001 - a table that is odd hides no other
            tell(name, failure_of(error, "follow", name))
    return states


def _log_failure(table: str, error: NeveError) -> None:
    logger.warning("%s: its followers are not known: %s", table, error)


def drop_follower(lake: Lake, table: str, name: str) -> FollowerState:
    """Remove a follower's tag and its property. Atomic; raises as `move_tag` does.

    Raises:
        NotFoundError: the table has no such follower; it names those that there are.
        ConflictError: it was moved meanwhile.
    """
    from neve.lake.tag_commit import TagMove, move_tag

    ref = lake.ref(table)
    metadata = lake.reader(ref.catalog).read_document(ref.identifier)
    states = {state.name: state for state in follower_states(ref.name, metadata, time.time())}
    if name not in states:
        known = ", ".join(states) or "none"
        raise NotFoundError(f"{ref.name} has no follower {name}", hint=f"its followers: {known}")
    state = states[name]
    move = TagMove(check_name(name), state.snapshot_id, None, (f"{PROPERTY_PREFIX}{name}", ""))
    if not move_tag(lake, ref, metadata.uuid, move):
        raise ConflictError(f"{ref.name}: follower {name} moves just now", hint="try again")
    return state


def _published(metadata: MetadataJson) -> Mapping[int, int]:
    """Return since when each snapshot was current, for those that were."""
    log = metadata.document.get("snapshot-log") or ()
    return {entry["snapshot-id"]: entry["timestamp-ms"] for entry in reversed(log)}


def _time_ms(snapshot: Mapping[str, Any], published: Mapping[int, int]) -> int:
    return int(published.get(snapshot["snapshot-id"], snapshot["timestamp-ms"]))


def _rows(snapshots: Sequence[Mapping[str, Any]]) -> int | None:
    rows = 0
    for snapshot in snapshots:
        summary = snapshot.get("summary") or {}
        if "total-records" not in summary:
            return None
        if summary.get("operation") != "replace":
            rows += sum(int(summary.get(count, 0)) for count in _ROW_COUNTS)
    return rows
