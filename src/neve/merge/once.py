"""One turn for each mirror, as `neve merge --once` and `lake.merge()` give it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from neve.errors import NeveError
from neve.merge.merger import Merger, configured_mergers
from neve.merge.report import Preview, TableReport
from neve.merge.side_by_side import side_by_side
from neve.observe import sentry

if TYPE_CHECKING:
    from neve.lake import Lake

logger = logging.getLogger(__name__)


def merge_once(
    lake: Lake,
    tables: Sequence[str],
    *,
    rebuild: bool = False,
    retry_rejected: bool = False,
    accept_loss: bool = False,
    strategy: str = "auto",
) -> list[TableReport]:
    """Merge what waits into each mirror. Exactly once, and safe to run again.

    A mirror's failure stands in its report (`error`); the other mirrors go on.

    Args:
        tables: the mirrors' names; none of them means all that are configured.
        rebuild: replace each mirror's rows by its whole changelog, in one commit.
        retry_rejected: instead, merge the events that were set aside and can be taken now.
        accept_loss: rebuild also of a changelog that may lack events; the report says why it may.

    Raises:
        ConfigError: no mirror is configured.
    """

    def give_turn(merger: Merger) -> TableReport:
        report = TableReport(merger.name)
        try:
            if rebuild:
                merger.rebuild(report, accept_loss=accept_loss)
            elif retry_rejected:
                merger.retry_rejected(report)
            else:
                merger.merge(report=report)
        except Exception as error:  # noqa: BLE001 - one mirror's defect costs no other its turn
            report.outcome, report.error = "failed", _reported(error, merger.name)
        return report

    mergers = configured_mergers(lake, tuple(tables), lake.progress, strategy)
    return side_by_side(mergers, lake.settings.merge.parallel_tables, give_turn)


def preview_once(
    lake: Lake,
    tables: Sequence[str],
    *,
    rebuild: bool = False,
    retry_rejected: bool = False,
    accept_loss: bool = False,
    strategy: str = "auto",
) -> list[Preview]:
    """Say what the next commit to each mirror would change. Writes nothing.

    A mirror that cannot be merged has the reason in its preview (`error`).
    """
    previews = []
    for merger in configured_mergers(lake, tuple(tables), lake.progress, strategy):
        try:
            preview = merger.preview(
                rebuild=rebuild, retry_rejected=retry_rejected, accept_loss=accept_loss
            )
        except Exception as error:  # noqa: BLE001 - one mirror's defect costs no other its turn
            preview = Preview(merger.name, error=_reported(error, merger.name))
        previews.append(preview)
    return previews


def _reported(error: Exception, mirror: str) -> NeveError:
    """Return what a mirror's turn failed with; a defect, ours or a library's, goes to Sentry."""
    if isinstance(error, NeveError):
        return error
    sentry.capture(error, "merge", mirror)
    # What it says may hold a cell's value.
    logger.debug("%s: merge failed", mirror, exc_info=error)
    defect = NeveError(
        f"{mirror}: internal error: {type(error).__name__}",
        hint="run it again with -vv to see where, and report it",
    )
    defect.__cause__ = error
    return defect
