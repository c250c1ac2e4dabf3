"""Which versions of a table stay and which go, with the reason for each; and carrying that out.

Every version stays for `retain` after it was current, then one an hour and one a day under tags
(`kept_versions.py`). What somebody still needs stays, too: refs, followers, merges, the index,
recovery of direct writes. The plan is a value; carrying it out does what still holds by then.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from neve.ages import age_text
from neve.lake.create import FEW_METADATA_FILES
from neve.lake.expiry import Removed, SnapshotRemoval, remove_expired, retained_removal
from neve.lake.follower_tags import oldest_unread_ms, unread_snapshots
from neve.lake.history import not_current_since
from neve.lake.kept_moments import RECORD
from neve.lake.metadata_json import MetadataJson
from neve.upkeep.kept_versions import (
    KeptVersion,
    due_versions,
    encode_record,
    new_tag,
    outdated_tags,
    recorded_tags,
)
from neve.upkeep.table_places import TablePlaces

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.commit_loop import RetryPolicy
    from neve.lake.table_ref import TableRef
    from neve.upkeep.retention_policy import RetentionPolicy

logger = logging.getLogger(__name__)

# Each expiry is a commit: for fewer snapshots than this, `neve run` does nothing.
WORTH_A_COMMIT = 20


@dataclass(frozen=True)
class ExpiredSnapshot:
    """A snapshot that goes."""

    snapshot_id: int
    not_current_since: datetime
    reason: str


@dataclass(frozen=True)
class DroppedTag:
    """A tag that goes."""

    tag: str
    snapshot_id: int
    reason: str


@dataclass(frozen=True)
class RetentionPlan:
    """What happens to the versions of one table.

    Args:
        kept: how many snapshots stay, by the reason.
        skipped: why nothing is done at all; empty: it is.
    """

    table: str
    table_uuid: str
    expire: tuple[ExpiredSnapshot, ...] = ()
    new_tags: tuple[KeptVersion, ...] = ()
    drop_tags: tuple[DroppedTag, ...] = ()
    kept: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    skipped: str = ""

    @property
    def is_empty(self) -> bool:
        return not (self.expire or self.new_tags or self.drop_tags)

    @property
    def why(self) -> str:
        """Why something happens; empty: nothing does."""
        if self.expire:
            return self.expire[0].reason
        if self.new_tags:
            return "one version an hour and one a day is kept"
        return self.drop_tags[0].reason if self.drop_tags else ""

    def effect_on(self, snapshots: int) -> str:
        """Say what becomes of so many snapshots; other actions may add some meanwhile."""
        effects = [f"{len(self.expire):,} of {snapshots:,} snapshots expire"] if self.expire else []
        for tags, what in ((self.new_tags, "made"), (self.drop_tags, "dropped")):
            if tags:
                effects.append(f"1 tag {what}" if len(tags) == 1 else f"{len(tags):,} tags {what}")
        return ", ".join(effects)


def plan_retention(
    name: str,
    metadata: MetadataJson,
    policy: RetentionPolicy,
    now: float,
    needed: Mapping[int, str] | None = None,
    worth: int = 1,
) -> RetentionPlan:
    """Decide on each snapshot of a table. Pure.

    Args:
        needed: snapshots that something outside of this table's metadata needs, and what.
        worth: fewer snapshots than this are left for later.
    """
    if not policy.expire:
        reason = f"snapshots of a {policy.kind.value} are expired only by a policy of upkeep.tables"
        return RetentionPlan(name, metadata.uuid, skipped=reason)
    new_tags = due_versions(metadata, policy, now)
    drop_tags = _dropped_tags(metadata, policy, now)
    kept = _kept(metadata, policy, now, needed or {})
    for tag, snapshot_id in metadata.refs.items():
        if tag not in drop_tags:
            kept[snapshot_id] = f"{tag} names it"
    for version in new_tags:
        kept[version.snapshot_id] = f"{version.tag} is to name it"
    since = not_current_since(metadata)
    reason = f"not current for more than {age_text(policy.retain_seconds)}"
    expire = tuple(
        ExpiredSnapshot(number, _time(since[number]), reason)
        for number in metadata.snapshots
        if number not in kept
    )
    return RetentionPlan(
        name,
        metadata.uuid,
        expire if len(expire) >= worth else (),
        tuple(new_tags),
        tuple(drop_tags.values()),
        Counter(kept.values()),
        tuple(_late_followers(name, metadata, policy, now, {each.snapshot_id for each in expire})),
    )


def carry_out_retention(
    lake: Lake,
    ref: TableRef,
    plan: RetentionPlan,
    policy: RetentionPolicy,
    now: float,
    needed: Mapping[int, str] | None = None,
    retry: RetryPolicy | None = None,
    places: TablePlaces | None = None,
) -> Removed:
    """Make and drop the plan's tags and remove its snapshots, in one commit; then their files.

    Atomic; idempotent. What has come to need a snapshot since the plan was made keeps it. Files
    that another table may need stay.

    Args:
        places: where tables lie, shared by all that asks for it; None: this reads it all.

    Raises as `remove_expired`.
    """
    for warning in plan.warnings:
        logger.warning("%s", warning)
    if plan.is_empty:
        return Removed()
    known = places or TablePlaces(lake)
    removed = remove_expired(
        lake,
        ref,
        plan.table_uuid,
        lambda metadata: removal_of(plan, metadata, policy, now, needed),
        lambda metadata, files: known.why_shared(ref, metadata, files, anew=True),
        retry,
    )
    logger.info(
        "%s: %d snapshots expired, %d files deleted, tags made: %d, dropped: %d%s",
        plan.table,
        removed.snapshots,
        len(removed.files.paths),
        len(plan.new_tags),
        len(plan.drop_tags),
        f"; files are left: {removed.left}" if removed.left else "",
    )
    return removed


def removal_of(
    plan: RetentionPlan,
    metadata: MetadataJson,
    policy: RetentionPolicy,
    now: float,
    needed: Mapping[int, str] | None,
) -> SnapshotRemoval:
    """Return what of a plan holds for the table as it is now. Pure."""
    again = plan_retention(plan.table, metadata, policy, now, needed)
    removal = retained_removal(
        SnapshotRemoval(
            tuple(each.snapshot_id for each in plan.expire),
            tuple(
                new_tag(each, metadata)
                for each in plan.new_tags
                if each.snapshot_id in metadata.snapshots
            ),
            {each.tag: each.snapshot_id for each in plan.drop_tags},
            known_main=frozenset(recorded_tags(metadata).values()),
        ),
        metadata,
        {each.snapshot_id for each in again.expire},
    )
    return _with_few_metadata_files(_with_record(removal, metadata), metadata, policy)


def _with_few_metadata_files(
    removal: SnapshotRemoval, metadata: MetadataJson, policy: RetentionPolicy
) -> SnapshotRemoval:
    """Let commits to a table that Neve writes delete old metadata files, unless it says otherwise.

    Otherwise each commit leaves one behind, for ever.
    """
    missing = {
        key: value for key, value in FEW_METADATA_FILES.items() if key not in metadata.properties
    }
    if removal.is_empty or not policy.kind.is_own or not missing:
        return removal
    return replace(removal, set_properties={**missing, **removal.set_properties})


def _with_record(removal: SnapshotRemoval, metadata: MetadataJson) -> SnapshotRemoval:
    """Add the property that says which tags are upkeep's."""
    tags = recorded_tags(metadata)
    after = {name: number for name, number in tags.items() if name not in removal.drop_tags}
    after |= {tag.name: tag.snapshot_id for tag in removal.new_tags}
    if after == tags:
        return removal
    return replace(
        removal,
        set_properties={RECORD: encode_record(after)} if after else {},
        remove_properties=() if after or RECORD not in metadata.properties else (RECORD,),
    )


def _kept(
    metadata: MetadataJson, policy: RetentionPolicy, now: float, needed: Mapping[int, str]
) -> dict[int, str]:
    """Return the snapshots that stay, but for those that refs name, and why."""
    kept: dict[int, str] = {}
    retained = f"current within {age_text(policy.retain_seconds)}"
    oldest_ms = (now - policy.retain_seconds) * 1000
    for number, since_ms in not_current_since(metadata).items():
        if since_ms >= oldest_ms:
            kept[number] = retained
    for branch in metadata.branches & metadata.refs.keys():
        ref = (metadata.document.get("refs") or {}).get(branch) or {}
        least = max(policy.retain_min, int(ref.get("min-snapshots-to-keep") or 0))
        age_ms = ref.get("max-snapshot-age-ms")
        for place, snapshot in enumerate(_line(metadata, metadata.refs[branch])):
            if place < least:
                kept.setdefault(snapshot["snapshot-id"], f"one of the last {least} of {branch}")
            elif age_ms is None:
                break
            elif snapshot["timestamp-ms"] >= now * 1000 - int(age_ms):
                kept.setdefault(snapshot["snapshot-id"], f"the retention of {branch}")
    for number, reason in needed.items():
        kept.setdefault(number, reason)
    horizon_ms = int((now - policy.follow_horizon_seconds) * 1000)
    for number in unread_snapshots(metadata, horizon_ms):
        kept.setdefault(number, "a follower has yet to read it")
    return kept


def _line(metadata: MetadataJson, snapshot_id: int | None) -> list[Mapping[str, Any]]:
    line = []
    while snapshot_id is not None and (snapshot := metadata.snapshots.get(snapshot_id)):
        line.append(snapshot)
        snapshot_id = snapshot.get("parent-snapshot-id")
    return line


def _dropped_tags(
    metadata: MetadataJson, policy: RetentionPolicy, now: float
) -> dict[str, DroppedTag]:
    """Return the tags that go: upkeep's own when their time is over, others' by their own age."""
    dropped = {
        tag: DroppedTag(tag, number, "it was kept for as long as the policy says")
        for tag, number in outdated_tags(metadata, policy, now).items()
    }
    ours = recorded_tags(metadata)
    for tag, ref in (metadata.document.get("refs") or {}).items():
        snapshot = metadata.snapshots.get(ref["snapshot-id"])
        age_ms = ref.get("max-ref-age-ms")
        if ref["type"] != "tag" or age_ms is None or snapshot is None or tag in ours:
            continue
        if now * 1000 - snapshot["timestamp-ms"] > int(age_ms):
            dropped[tag] = DroppedTag(tag, ref["snapshot-id"], "its own RETAIN is over")
    return dropped


def _late_followers(
    name: str, metadata: MetadataJson, policy: RetentionPolicy, now: float, expired: set[int]
) -> list[str]:
    horizon_ms = int((now - policy.follow_horizon_seconds) * 1000)
    lost = unread_snapshots(metadata, 0) & expired
    if not lost:
        return []
    horizon = age_text(policy.follow_horizon_seconds)
    return [
        f"{name}: follower {follower} is more than {horizon} behind; "
        "snapshots that it has not read are expired. If nobody needs it: neve follow drop"
        for follower, oldest_ms in oldest_unread_ms(metadata).items()
        if oldest_ms < horizon_ms
    ]


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
