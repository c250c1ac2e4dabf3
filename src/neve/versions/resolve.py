"""From what people write to snapshots: ids, tags, branches and times of one table. Pure.

A time means the version that was current then, by the table's history log and not by the times of
snapshots: a published snapshot keeps the time of its staging. Two commits can share a millisecond,
and clocks differ, so that a time is not exact. An id is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Union

from neve.errors import NeveError, NotFoundError, UsageError
from neve.lake.first_snapshot import ReadFile, is_first_snapshot
from neve.versions.arguments import MOST_DIGITS

if TYPE_CHECKING:
    from neve.lake.metadata_json import MetadataJson

_SHOWN = 3
_DAY = re.compile(r"([0-9]{4})(0[1-9]|1[0-2])(0[1-9]|[12][0-9]|3[01])")

Version = Union[int, str, datetime]  # noqa: UP007 - a type at run time on Python 3.10 too
"""A snapshot id, a time, or a text: a tag or a branch, else an id in digits, else an ISO time."""


@dataclass(frozen=True)
class Commit:
    """A snapshot, and the moment since which a reader of its line saw it."""

    snapshot_id: int
    parent_id: int | None
    operation: str
    committed_ms: int
    manifest_list: str
    summary: Mapping[str, str]


@dataclass(frozen=True)
class VersionRange:
    """The commits after one version, up to and including another.

    Args:
        start_id: the version before the first commit; None is the empty table.
        end_id: the last version; None is the empty table.
        commits: the oldest first, each the parent of the next one.
        schema_id: the schema whose columns the rows of the range have.
        is_complete: no snapshot between start and end has expired.
    """

    start_id: int | None
    end_id: int | None
    commits: tuple[Commit, ...]
    schema_id: int
    is_complete: bool = True

    @property
    def steps(self) -> tuple[Commit | None, ...]:
        """The commit of each step to the next manifest list; None: several, not to be told apart.

        Where snapshots have expired, what they changed is in the first step.
        """
        return self.commits if self.is_complete else (None, *self.commits[1:])

    @property
    def ends(self) -> VersionRange:
        """The same range in one step."""
        is_one_commit = self.is_complete and len(self.commits) < 2
        return replace(self, commits=self.commits[-1:], is_complete=is_one_commit)


def resolve_version(name: str, metadata: MetadataJson, version: Version) -> int:
    """Return the snapshot that an id, a ref or a time means.

    Raises:
        NotFoundError: there is no such version; the nearest ones are named.
        UsageError: a text is neither a ref nor a time.
    """
    snapshot_id = _resolve(name, metadata, version)
    if snapshot_id is None:
        raise _before_log(name, metadata, version)
    return snapshot_id


def resolve_range(
    name: str,
    metadata: MetadataJson,
    since: Version | None,
    until: Version | None,
    *,
    only_ends: bool = False,
    read: ReadFile | None = None,
) -> VersionRange:
    """Return the commits after `since`, up to `until`; without them, from the first to the current.

    A time before the first snapshot means from the beginning.

    Args:
        only_ends: snapshots between the two ends may have expired.
        read: reads a file of the table, to prove which snapshot is the first.

    Raises:
        NotFoundError: a version does not exist, is not an ancestor of the end, or was expired.
        UsageError: a text is neither a ref nor a time, or the start comes after the end.
    """
    start_id = None if since is None else _resolve(name, metadata, since)
    end_id = metadata.current_snapshot_id if until is None else _resolve(name, metadata, until)
    schema_id = _schema_id(metadata, until, end_id)
    commits: list[Commit] = []
    for commit in ancestors(metadata, end_id):
        if commit.snapshot_id == start_id:
            return VersionRange(start_id, end_id, tuple(reversed(commits)), schema_id)
        commits.append(commit)
    # At a time before the log there may have been another line: a table that was replaced since.
    is_complete = not commits or is_first(metadata, commits[-1], read if since is None else None)
    if start_id is None and is_complete:
        return VersionRange(None, end_id, tuple(reversed(commits)), schema_id)
    if only_ends and not is_complete and _may_come_before(metadata, start_id, end_id):
        return VersionRange(
            start_id, end_id, tuple(reversed(commits)), schema_id, is_complete=False
        )
    raise _not_between(name, metadata, start_id, end_id, commits, is_complete=is_complete)


def ancestors(metadata: MetadataJson, snapshot_id: int | None) -> Iterator[Commit]:
    """Yield a snapshot, its parent and so on, as far as they have not expired."""
    published = {entry["snapshot-id"]: entry["timestamp-ms"] for entry in reversed(_log(metadata))}
    seen_since = None
    while snapshot_id is not None and (snapshot := metadata.snapshots.get(snapshot_id)):
        # A snapshot that was never current itself became visible with the one that follows it.
        seen_since = published.get(snapshot_id, seen_since)
        commit = _commit(snapshot, seen_since)
        yield commit
        snapshot_id = commit.parent_id


def is_first(metadata: MetadataJson, commit: Commit, read: ReadFile | None = None) -> bool:
    """Tell whether nothing was before a commit, and that is proven."""
    return is_first_snapshot(metadata, metadata.snapshots[commit.snapshot_id], read)


def _commit(snapshot: Mapping[str, Any], seen_since: int | None) -> Commit:
    summary = snapshot.get("summary") or {}
    return Commit(
        snapshot_id=snapshot["snapshot-id"],
        parent_id=snapshot.get("parent-snapshot-id"),
        operation=summary.get("operation", "append"),
        committed_ms=snapshot["timestamp-ms"] if seen_since is None else seen_since,
        manifest_list=snapshot.get("manifest-list", ""),
        summary=summary,
    )


def _resolve(name: str, metadata: MetadataJson, version: Version) -> int | None:
    """Return a snapshot; None: the time is before the first one."""
    if isinstance(version, str):
        if version in metadata.refs:
            return metadata.refs[version]
        version = _id_or_time(metadata, version)
    if isinstance(version, int):
        if version not in metadata.snapshots:
            raise NotFoundError(f"{name} has no snapshot {version}", hint=_nearest(metadata))
        return version
    milliseconds = _milliseconds(name, metadata, version)
    log = _log(metadata)
    # Clocks differ, so that times do not always rise. All engines take the last that fits.
    reached = [place for place, entry in enumerate(log) if entry["timestamp-ms"] <= milliseconds]
    if not reached:
        return None
    entry, following = log[reached[-1]], log[reached[-1] + 1 :]
    current = int(entry["snapshot-id"])
    if current not in metadata.snapshots:
        raise NotFoundError(
            f"{name}: snapshot {current}, which was current at {version}, has expired",
            hint=_nearest(metadata),
        )
    is_exact = entry["timestamp-ms"] == milliseconds
    if following and not is_exact and _is_gap(metadata, current, following[0]["snapshot-id"]):
        raise NotFoundError(
            f"{name}: the snapshot that was current at {version} may have expired: the history log "
            f"lacks what came after {current}",
            hint=_nearest(metadata),
        )
    return current


def _id_or_time(metadata: MetadataJson, text: str) -> int | str:
    """Tell digits that are a snapshot id from 20261101, which is a day, too."""
    if not text.isdecimal() or len(text) > MOST_DIGITS:
        return text
    day = _DAY.fullmatch(text)
    return "-".join(day.groups()) if day and int(text) not in metadata.snapshots else int(text)


def _is_gap(metadata: MetadataJson, before: int, after: int) -> bool:
    """Tell whether snapshots may have expired that were current between two entries of the log.

    PyIceberg's expiry takes single entries out of the log, and leaves those before them.
    """
    line = list(ancestors(metadata, after))
    ids = {commit.snapshot_id for commit in ancestors(metadata, before)}
    is_joined = any(commit.snapshot_id in ids for commit in line)
    return bool(line) and not is_joined and not is_first(metadata, line[-1])


def _before_log(name: str, metadata: MetadataJson, version: Version) -> NotFoundError:
    """Say whether the table was empty at a time, or its versions of then have expired."""
    reason = f"{name} had no snapshot at {version} yet"
    first = next((metadata.snapshots.get(entry["snapshot-id"]) for entry in _log(metadata)), None)
    if first is not None and not is_first_snapshot(metadata, first):
        expired = "have expired" if first.get("parent-snapshot-id") else "may have expired"
        reason = f"{name}: its history log begins after {version}; older snapshots {expired}"
    return NotFoundError(reason, hint=_nearest(metadata))


def _log(metadata: MetadataJson) -> list[Mapping[str, Any]]:
    return metadata.document.get("snapshot-log") or []


def _schema_id(metadata: MetadataJson, until: Version | None, end_id: int | None) -> int:
    """Return the schema a reader of the end gets: of a branch, as Iceberg has it, the table's."""
    current = metadata.current_schema_id
    is_branch = until is None or (isinstance(until, str) and until in metadata.branches)
    if is_branch or end_id is None:
        return current
    return int(metadata.snapshots[end_id].get("schema-id", current))


def _milliseconds(name: str, metadata: MetadataJson, version: str | datetime) -> int:
    if isinstance(version, datetime):
        moment = version
    else:
        try:
            # Python 3.10 does not know the Z.
            text = version.removesuffix("Z") + "+00:00" * version.endswith("Z")
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise UsageError(
                f"{name} has no tag or branch '{version}', and it is no ISO-8601 time",
                hint=_nearest(metadata),
            ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return int(moment.timestamp() * 1_000_000) // 1000


def _may_come_before(metadata: MetadataJson, start_id: int | None, end_id: int | None) -> bool:
    """Tell whether a start may be an ancestor, where the snapshots that would prove it expired."""
    if start_id is None or end_id is None:
        return False
    start, end = metadata.snapshots[start_id], metadata.snapshots[end_id]
    return (start.get("sequence-number") or 0, start["timestamp-ms"]) < (
        end.get("sequence-number") or 0,
        end["timestamp-ms"],
    )


def _not_between(
    name: str,
    metadata: MetadataJson,
    start_id: int | None,
    end_id: int | None,
    commits: list[Commit],
    *,
    is_complete: bool,
) -> NeveError:
    """Say why the walk from the end did not arrive at the start."""
    behind = {commit.snapshot_id for commit in ancestors(metadata, start_id)}
    if end_id is None or end_id in behind:
        return UsageError(
            f"{name}: the range begins at snapshot {start_id}, after its end {end_id or '(empty)'}",
            hint="swap the two versions",
        )
    oldest = commits[-1]
    is_apart = bool(behind.intersection(commit.snapshot_id for commit in commits))
    if not (is_complete or is_apart):
        reason = "have expired" if oldest.parent_id else "may have expired"
        return NotFoundError(
            f"{name}: snapshots between {start_id or 'the beginning'} and {end_id} {reason}, "
            "so that the commits there can no longer be told apart",
            hint=f"the oldest version still there is {_shown(oldest)}: changes after it can be read"
            + ("" if start_id is None else "; mode net compares the two ends"),
        )
    return NotFoundError(
        f"{name}: snapshot {start_id} is no ancestor of {end_id}; it was rolled back, or is on "
        "another branch",
        hint=f"ancestors: {', '.join(map(_shown, commits[:_SHOWN]))}",
    )


def _nearest(metadata: MetadataJson) -> str:
    """Name the versions that a person may have meant: refs, and the newest of the history."""
    if not metadata.snapshots:
        return "the table has no snapshot"
    newest = [commit for commit, _ in zip(_main(metadata), range(_SHOWN), strict=False)]
    refs = ", ".join(sorted(metadata.refs)[: _SHOWN * 2])
    return f"refs: {refs}; newest: {', '.join(map(_shown, newest))}"


def _main(metadata: MetadataJson) -> Iterator[Commit]:
    return ancestors(metadata, metadata.current_snapshot_id)


def _shown(commit: Commit) -> str:
    moment = datetime.fromtimestamp(commit.committed_ms / 1000, timezone.utc)
    # A time without its milliseconds would mean the version before.
    return f"{commit.snapshot_id} ({moment.isoformat(timespec='milliseconds')})"
