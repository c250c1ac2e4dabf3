"""Remove from a table what is past its retention: snapshots, and stagings that lost."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from neve.lake.expiry import count_expirable, expire_snapshots

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from neve.lake import Lake
    from neve.publish.publisher import Publisher
    from neve.upkeep.spec import ExpiryPolicy

logger = logging.getLogger(__name__)


def expire(lake: Lake, table: Table, policy: ExpiryPolicy, now: float) -> int:
    """Expire a table's old snapshots if enough can go; return how many went. Idempotent."""
    older_than_ms = int((now - policy.retain_seconds) * 1000)
    expirable = count_expirable(table.metadata, older_than_ms, policy.retain_last)
    if expirable < policy.expire_at_once:
        return 0
    logger.info("%s: expiring %d snapshots", ".".join(table.name()), expirable)
    expire_snapshots(lake, lake.ref(table.name()), older_than_ms, policy.retain_last)
    return expirable


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
