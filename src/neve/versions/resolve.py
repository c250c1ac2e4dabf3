"""From what people write to snapshots: ids, tags, branches and times of one table. Pure.

A time means the version that was current then, by the table's history log and not by the times of
snapshots: a published snapshot keeps the time of its staging. Two commits can share a millisecond,
and clocks differ, so that a time is not exact. An id is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from neve.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

_SHOWN = 3


@dataclass(frozen=True)
class VersionRange:
    """The commits after one version, up to and including another.

    Args:
        start_id: the version before the first commit; None is the empty table.
        commits: the oldest first, each the parent of the next one.
    """

    start_id: int | None
    commits: tuple[Snapshot, ...]

    @property
    def end_id(self) -> int | None:
        return self.commits[-1].snapshot_id if self.commits else self.start_id


def resolve_version(name: str, metadata: TableMetadata, point: int | str) -> int:
    """Return the snapshot that an id, a ref or a time means.

    Raises:
        NotFoundError: there is no such version; the nearest ones are named.
        UsageError: a text is neither a ref nor a time.
    """
    if isinstance(point, int):
        if metadata.snapshot_by_id(point) is None:
            raise NotFoundError(f"{name} has no snapshot {point}", hint=_nearest(metadata))
        return point
    ref = metadata.refs.get(point)
    if ref is not None:
        return ref.snapshot_id
    current = _current_at(metadata, _milliseconds(name, metadata, point))
    if current is None:
        raise NotFoundError(f"{name} had no snapshot at {point} yet", hint=_nearest(metadata))
    return current


def resolve_range(
    name: str, metadata: TableMetadata, since: int | str | None, until: int | str | None
) -> VersionRange:
    """Return the commits after `since`, up to `until`; without them, from the first to the current.

    A time before the first snapshot means from the beginning.

    Raises:
        NotFoundError: a version does not exist, is not an ancestor of the end, or was expired.
        UsageError: a text is neither a ref nor a time, or the start comes after the end.
    """
    end_id = _end(name, metadata, until)
    start_id = _start(name, metadata, since)
    commits: list[Snapshot] = []
    oldest_parent = None
    for snapshot in _ancestors(metadata, end_id):
        if snapshot.snapshot_id == start_id:
            return VersionRange(start_id, tuple(reversed(commits)))
        commits.append(snapshot)
        oldest_parent = snapshot.parent_snapshot_id
    if start_id is None and oldest_parent is None:
        return VersionRange(None, tuple(reversed(commits)))
    raise _not_between(name, metadata, start_id, end_id, commits)


def _end(name: str, metadata: TableMetadata, until: int | str | None) -> int | None:
    if until is None:
        return metadata.current_snapshot_id
    if isinstance(until, str) and until not in metadata.refs:
        return _current_at(metadata, _milliseconds(name, metadata, until))
    return resolve_version(name, metadata, until)


def _start(name: str, metadata: TableMetadata, since: int | str | None) -> int | None:
    if since is None:
        return None
    if isinstance(since, str) and since not in metadata.refs:
        return _current_at(metadata, _milliseconds(name, metadata, since))
    return resolve_version(name, metadata, since)


def _ancestors(metadata: TableMetadata, snapshot_id: int | None) -> Iterator[Snapshot]:
    """Yield a snapshot, its parent and so on, as far as they are not expired."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    while snapshot_id is not None and (snapshot := by_id.get(snapshot_id)) is not None:
        yield snapshot
        snapshot_id = snapshot.parent_snapshot_id


def _current_at(metadata: TableMetadata, milliseconds: int) -> int | None:
    """Return the snapshot that was current at a time; None before the first one."""
    current = None
    for entry in metadata.snapshot_log:
        if entry.timestamp_ms > milliseconds:
            break
        current = entry.snapshot_id
    return current


def _milliseconds(name: str, metadata: TableMetadata, text: str) -> int:
    try:
        # Python 3.10 does not know the Z.
        moment = datetime.fromisoformat(text.removesuffix("Z") + "+00:00" * text.endswith("Z"))
    except ValueError:
        raise UsageError(
            f"{name} has no tag or branch '{text}', and it is no ISO-8601 time",
            hint=_nearest(metadata),
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return int(moment.timestamp() * 1_000_000) // 1000


def _not_between(
    name: str,
    metadata: TableMetadata,
    start_id: int | None,
    end_id: int | None,
    commits: list[Snapshot],
) -> Exception:
    """Say why the walk from the end did not arrive at the start."""
    behind = {snapshot.snapshot_id for snapshot in _ancestors(metadata, start_id)}
    if end_id is None or end_id in behind:
        return UsageError(
            f"{name}: the range begins at snapshot {start_id}, after its end {end_id or '(empty)'}",
            hint="swap the two versions",
        )
    oldest = commits[-1]
    if oldest.parent_snapshot_id is not None:
        return NotFoundError(
            f"{name}: snapshots between {start_id or 'the beginning'} and {end_id} have expired",
            hint=f"the oldest version still there is {_version(oldest)}",
        )
    return NotFoundError(
        f"{name}: snapshot {start_id} is no ancestor of {end_id}; it was rolled back, or is on "
        "another branch",
        hint="; ".join(["ancestors: " + ", ".join(map(_version, commits[:_SHOWN]))]),
    )


def _nearest(metadata: TableMetadata) -> str:
    """Name the versions that a person may have meant: refs, and the newest of the history."""
    if not metadata.snapshots:
        return "the table has no snapshot"
    newest = list(_ancestors(metadata, metadata.current_snapshot_id))[:_SHOWN]
    refs = ", ".join(sorted(metadata.refs)[: _SHOWN * 2])
    return f"refs: {refs}; newest: {', '.join(map(_version, newest))}"


def _version(snapshot: Snapshot) -> str:
    moment = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, timezone.utc)
    return f"{snapshot.snapshot_id} ({moment.isoformat(timespec='seconds')})"
