"""Discard stagings that lost against another worker's."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from neve.publish.publisher import Publisher

logger = logging.getLogger(__name__)


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
