"""Tags that keep one version an hour and one a day: which are due, and which are over. Pure.

A tag is named by a time (UTC), such as `2026-11-01` or `2026-11-01T13`, and names the version that
was current then: `VERSION AS OF '2026-11-01'` answers the same before and after there is a tag. The
table property `neve.kept-versions` says which tags are upkeep's; no other tag is ever touched, and
none is taken for upkeep's that somebody has moved.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from neve.lake.expiry import NewTag
from neve.lake.kept_moments import DAILY, HOURLY, RECORD, Moment, untagged_versions

if TYPE_CHECKING:
    from neve.lake.metadata_json import MetadataJson
    from neve.upkeep.retention_policy import RetentionPolicy


@dataclass(frozen=True)
class KeptVersion:
    """A version under a tag of upkeep's, and when the tag goes."""

    tag: str
    snapshot_id: int
    until: datetime


def recorded_tags(metadata: MetadataJson) -> dict[str, int]:
    """Return the tags that upkeep has made and nobody has moved, with their snapshots."""
    try:
        record = json.loads(metadata.properties.get(RECORD, "{}"))
        tags = {str(name): int(number) for name, number in record.items()}
    except (ValueError, TypeError, AttributeError):
        return {}
    return {name: number for name, number in tags.items() if metadata.refs.get(name) == number}


def due_versions(metadata: MetadataJson, policy: RetentionPolicy, now: float) -> list[KeptVersion]:
    """Return the versions that should have a tag and have none."""
    untagged = untagged_versions(
        metadata, policy.keep_hourly_seconds, policy.keep_daily_seconds, now
    )
    return [
        KeptVersion(moment.tag, snapshot_id, _end(moment, policy))
        for moment, snapshot_id in untagged
    ]


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


def _parse(tag: str, policy: RetentionPolicy) -> Moment | None:
    for name, keep in (
        (HOURLY, policy.keep_hourly_seconds),
        (DAILY, policy.keep_daily_seconds),
    ):
        try:
            at = datetime.strptime(tag, name).replace(tzinfo=timezone.utc)
        except ValueError:
            continue
        return Moment(tag, at, keep)
    return None


def _end(moment: Moment, policy: RetentionPolicy) -> datetime:
    return moment.at + timedelta(seconds=moment.keep_seconds + policy.reader_grace_seconds)
