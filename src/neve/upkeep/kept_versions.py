"""Tags that keep one version an hour and one a day: which are due, and which are over. Pure.

A tag is named by a time (UTC), such as `2026-11-01` or `2026-11-01T13`, and names the version that
was current then: `VERSION AS OF '2026-11-01'` answers the same before and after there is a tag. The
table property `neve.kept-versions` says which tags are upkeep's; no other tag is ever touched, and
none is taken for upkeep's that somebody has moved.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from neve.lake.expiry import NewTag
from neve.lake.history import versions_at

if TYPE_CHECKING:
    from neve.lake.metadata_json import MetadataJson
    from neve.upkeep.retention_policy import RetentionPolicy

RECORD = "neve.kept-versions"
_DAILY, _HOURLY = "%Y-%m-%d", "%Y-%m-%dT%H"


@dataclass(frozen=True)
class KeptVersion:
    """A version under a tag of upkeep's, and when the tag goes."""

    tag: str
    snapshot_id: int
    until: datetime


@dataclass(frozen=True)
class _Moment:
    tag: str
    at: datetime
    keep_seconds: float

    @property
    def at_ms(self) -> int:
        return int(self.at.timestamp() * 1000)


def recorded_tags(metadata: MetadataJson) -> dict[str, int]:
    """Return the tags that upkeep has made and nobody has moved, with their snapshots."""
    try:
        record = json.loads(metadata.properties.get(RECORD, "{}"))
        tags = {str(name): int(number) for name, number in record.items()}
    except (ValueError, TypeError, AttributeError):
        return {}
    return {name: number for name, number in tags.items() if metadata.refs.get(name) == number}


def due_versions(metadata: MetadataJson, policy: RetentionPolicy, now: float) -> list[KeptVersion]:
    """Return the versions that should have a tag and have none.

    The current version needs none: it stays, and a time finds it.
    """
    moments = {each.at_ms: each for each in _moments(policy, now)}
    versions = versions_at(metadata, moments)
    due = []
    for moment in _moments(policy, now):
        snapshot_id = versions.get(moment.at_ms)
        is_past = snapshot_id not in (None, metadata.current_snapshot_id)
        if snapshot_id is not None and is_past and moment.tag not in metadata.refs:
            due.append(KeptVersion(moment.tag, snapshot_id, _end(moment, policy)))
    return due


def outdated_tags(metadata: MetadataJson, policy: RetentionPolicy, now: float) -> dict[str, int]:
    """Return the tags of upkeep's whose time is over, with their snapshots.

    A tag stays for `reader_grace` longer than it is promised: a query may have begun with it.
    """
    outdated = {}
    for tag, snapshot_id in recorded_tags(metadata).items():
        moment = _parse(tag, policy)
        if moment is None or _end(moment, policy).timestamp() <= now:
            outdated[tag] = snapshot_id
    return outdated


def new_tag(version: KeptVersion, metadata: MetadataJson) -> NewTag:
    """Return the tag of a version, with an age after which other engines drop it, too."""
    made_ms = int(metadata.snapshots[version.snapshot_id]["timestamp-ms"])
    age_ms = int(version.until.timestamp() * 1000) - made_ms
    return NewTag(version.tag, version.snapshot_id, max(age_ms, 1))


def encode_record(tags: dict[str, int]) -> str:
    return json.dumps(dict(sorted(tags.items())), separators=(",", ":"))


def _moments(policy: RetentionPolicy, now: float) -> Iterator[_Moment]:
    """Yield the hours and midnights that are kept, the newest first."""
    present = datetime.fromtimestamp(now, timezone.utc)
    hour = present.replace(minute=0, second=0, microsecond=0)
    day = hour.replace(hour=0)
    for first, step, name, keep in (
        (hour, timedelta(hours=1), _HOURLY, policy.keep_hourly_seconds),
        (day, timedelta(days=1), _DAILY, policy.keep_daily_seconds),
    ):
        at = first
        while (present - at).total_seconds() < keep:
            yield _Moment(at.strftime(name), at, keep)
            at -= step


def _parse(tag: str, policy: RetentionPolicy) -> _Moment | None:
    for name, keep in (
        (_HOURLY, policy.keep_hourly_seconds),
        (_DAILY, policy.keep_daily_seconds),
    ):
        try:
            at = datetime.strptime(tag, name).replace(tzinfo=timezone.utc)
        except ValueError:
            continue
        return _Moment(tag, at, keep)
    return None


def _end(moment: _Moment, policy: RetentionPolicy) -> datetime:
    return moment.at + timedelta(seconds=moment.keep_seconds + policy.reader_grace_seconds)
