"""What is said of a table's turn that failed, so that it costs no other table its own."""

from __future__ import annotations

import logging

from neve.errors import InternalError, NeveError
from neve.observe import sentry

logger = logging.getLogger(__name__)


def failure_of(error: Exception, part: str, table: str | None = None) -> NeveError:
    """Tell log and Sentry of a failure, expected or not; return it as what a report says of it.

    Whoever has turns to give catches `Exception` around each, and hands it over here.

    Args:
        part: what failed, such as merge or move.
        table: whose turn it was.
    """
    sentry.capture(error, part, table)
    if isinstance(error, NeveError):
        logger.info("%s: %s failed: %s", table or "all tables", part, error)
        return error
    # A defect, ours or a library's. Its words may hold a cell's value: the log has them alone.
    logger.error("%s: %s failed", table or "all tables", part, exc_info=error)
    return InternalError(f"internal error: {type(error).__name__}")
