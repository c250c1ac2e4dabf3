"""The hours and midnights (UTC) whose versions stay, each under the tag of its name. Pure.

Upkeep makes these tags, and who removes snapshots otherwise leaves the versions for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from neve.lake.history import versions_at

if TYPE_CHECKING:
    from neve.lake.metadata_json import MetadataJson

# A table property: which tags are upkeep's.
RECORD = "neve.kept-versions"
DAILY, HOURLY = "%Y-%m-%d", "%Y-%m-%dT%H"


@dataclass(frozen=True)
class Moment:
    """A time whose version is kept for so long after it, under a tag."""

    tag: str
    at: datetime
    keep_seconds: float

    @property
    def at_ms(self) -> int:
        return int(self.at.timestamp() * 1000)


def untagged_versions(
    metadata: MetadataJson, keep_hourly_seconds: float, keep_daily_seconds: float, now: float
) -> list[tuple[Moment, int]]:
    """Return the moments that should have a tag and have none, with the snapshots of then.

    The current version needs none: it stays, and a time finds it.
    """
    moments = list(_moments(keep_hourly_seconds, keep_daily_seconds, now))
    versions = versions_at(metadata, {moment.at_ms for moment in moments})
    return [
        (moment, versions[moment.at_ms])
        for moment in moments
        if moment.tag not in metadata.refs
        and versions.get(moment.at_ms, metadata.current_snapshot_id) != metadata.current_snapshot_id
    ]


def _moments(keep_hourly_seconds: float, keep_daily_seconds: float, now: float) -> Iterator[Moment]:
    """Yield the hours and midnights that are kept, the newest first."""
    present = datetime.fromtimestamp(now, timezone.utc)
    hour = present.replace(minute=0, second=0, microsecond=0)
    day = hour.replace(hour=0)
    for first, step, name, keep in (
        (hour, timedelta(hours=1), HOURLY, keep_hourly_seconds),
        (day, timedelta(days=1), DAILY, keep_daily_seconds),
    ):
        at = first
        while (present - at).total_seconds() < keep:
            yield Moment(at.strftime(name), at, keep)
            at -= step
