"""Files of a table's location that are in no snapshot, as a recovery reports them."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from neve.errors import NeveError
from neve.upkeep.orphans import OrphanSearch

if TYPE_CHECKING:
    from neve.lake import Lake
    from neve.lake.table_ref import TableRef
    from neve.lake.unconfirmed import ReadUnconfirmed

logger = logging.getLogger(__name__)


def unreferenced_files(
    lake: Lake, ref: TableRef, unconfirmed: ReadUnconfirmed = tuple
) -> dict[str, Any]:
    """List files of any age, at most `MOST_AT_ONCE`, as fields of a report by their names.

    Young ones may be of a commit that is going on.

    Args:
        unconfirmed: reads the direct writes whose files may yet come into the table.
    """
    try:
        plan = OrphanSearch(lake, ref, tuple(unconfirmed())).plan(time.time())
    except (NeveError, OSError) as error:
        logger.info("%s: its files were not looked for: %s", ref.name, error)
        return {"unreferenced_skipped": str(error)}
    if plan.skipped:
        return {"unreferenced_skipped": plan.skipped}
    return {
        "unreferenced_files": len(plan.orphans),
        "unreferenced_bytes": plan.bytes,
        "unreferenced_is_complete": plan.is_complete,
        "unreferenced": plan.orphans,
    }
