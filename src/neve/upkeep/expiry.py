"""Remove from a table what is past its retention: snapshots, and stagings that lost."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from neve.lake.expiry import count_expirable, expire_snapshots
from neve.lake.follower_tags import TAG_PREFIX, oldest_unread_ms
from neve.lake.metadata_reader import as_json

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from neve.lake import Lake
    from neve.publish.publisher import Publisher
    from neve.upkeep.spec import ExpiryPolicy

logger = logging.getLogger(__name__)


def expire(
    lake: Lake, table: Table, policy: ExpiryPolicy, now: float, follow_horizon_seconds: float
) -> int:
    """Expire a table's old snapshots if enough can go; return how many went. Idempotent.

    What a follower has yet to read stays, up to an age. Its tag keeps one snapshot only.
    """
    retained_ms = int((now - policy.retain_seconds) * 1000)
    horizon_ms = int((now - follow_horizon_seconds) * 1000)
    unread_ms = _unread_ms(table)
    held_ms = min((max(each, horizon_ms) for each in unread_ms.values()), default=retained_ms)
    older_than_ms = min(retained_ms, held_ms)
    expirable = count_expirable(table.metadata, older_than_ms, policy.retain_last)
    if expirable < policy.expire_at_once:
        return 0
    for follower, oldest_ms in unread_ms.items():
        if oldest_ms < older_than_ms:
            logger.warning(
                "%s: follower %s is more than %.0f s behind; snapshots that it has not read are "
                "expired. If nobody needs it: neve follow drop",
                ".".join(table.name()),
                follower,
                follow_horizon_seconds,
            )
    logger.info("%s: expiring %d snapshots", ".".join(table.name()), expirable)
    expire_snapshots(lake, lake.ref(table.name()), older_than_ms, policy.retain_last)
    return expirable


def _unread_ms(table: Table) -> dict[str, int]:
    if not any(name.startswith(TAG_PREFIX) for name in table.metadata.refs):
        return {}
    return oldest_unread_ms(as_json(table))


def discard_abandoned(publisher: Publisher, retain_seconds: float, now: float) -> int:
    """Discard old stagings whose rows are proven to be in the table; return how many went."""
    abandoned = publisher.abandoned(int((now - retain_seconds) * 1000))
    for staged in abandoned:
        logger.warning(
            "%s: %s, of %s rows, lost against another worker's; it is discarded",
            publisher.table.name,
            staged.ref,
            staged.summary.get("added-records", 0),
        )
        publisher.discard(staged)
    return len(abandoned)
