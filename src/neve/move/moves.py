"""Several tables: each is planned, moved and verified by itself; the others survive its failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from neve.errors import UsageError
from neve.lake.registering import require_registering
from neve.lake.table_ref import TableRef
from neve.move.choose import choose_tables, tables_of
from neve.move.mover import Mover
from neve.move.plan import failed_plan
from neve.move.progress import Progress
from neve.move.report import CheckReport, MoveReport, PlanReport
from neve.move.spec import MoveSpec
from neve.observe.failures import failure_of

if TYPE_CHECKING:
    from neve.lake import Lake

PART = "move"
Report = TypeVar("Report")


def move_tables(
    lake: Lake, patterns: Sequence[str], spec: MoveSpec, *, interval_seconds: float = 10.0
) -> list[MoveReport]:
    """Move tables side by side. A failure stands in the table's report, and the others go on.

    Args:
        patterns: names, globs or namespaces.
        interval_seconds: between two lines of progress.

    Raises:
        NeveError: what was asked makes no sense, or the target catalog takes no tables.
    """

    def move(mover: Mover, source: TableRef) -> MoveReport:
        try:
            report = mover.move(source)
        except Exception as error:  # noqa: BLE001 - the others go on
            target = TableRef(spec.target, source.identifier)
            failure = failure_of(error, PART, source.name)
            return MoveReport(source.name, target.name, "failed", error=failure)
        lake.progress(f"{report.table}: {report.outcome} at {report.location}")
        return report

    sources = choose_tables(lake, patterns, spec.target)
    return _for_each(lake, sources, spec, move, Progress(lake.progress, interval_seconds))


def plan_moves(lake: Lake, patterns: Sequence[str], spec: MoveSpec) -> list[PlanReport]:
    """Say what moving tables would do, and what blocks it. Writes nothing."""

    def plan(mover: Mover, source: TableRef) -> PlanReport:
        try:
            return mover.plan(source).report()
        except Exception as error:  # noqa: BLE001 - the others are planned
            return failed_plan(source, spec, failure_of(error, PART, source.name))

    sources = choose_tables(lake, patterns, spec.target)
    return _for_each(lake, sources, spec, plan, Progress(lake.progress))


def verify_moved(lake: Lake, patterns: Sequence[str], spec: MoveSpec) -> list[CheckReport]:
    """Compare tables that were moved before with their files and their sources. Writes nothing."""

    def check(mover: Mover, target: TableRef) -> CheckReport:
        try:
            return mover.check(target)
        except Exception as error:  # noqa: BLE001 - the others are compared
            failure = failure_of(error, PART, target.name)
            return CheckReport(target.name, target.catalog, "failed", error=failure)

    targets = [each for text in patterns for each in tables_of(lake, text, spec.target)]
    return _for_each(lake, targets, spec, check, Progress(lake.progress))


def _for_each(
    lake: Lake,
    tables: Sequence[TableRef],
    spec: MoveSpec,
    work: Callable[[Mover, TableRef], Report],
    progress: Progress,
) -> list[Report]:
    if spec.location and len(tables) > 1:
        raise UsageError(
            f"--location is for one table, and {len(tables)} were named",
            hint="move them one by one, or leave --location out",
        )
    require_registering(lake, spec.target)
    for catalog in {table.catalog for table in tables}:
        lake.catalog(catalog)  # connected here: threads would connect twice
    mover = Mover(lake, spec, progress)
    pool = ThreadPoolExecutor(spec.tables_at_once, "tables")
    turns = [pool.submit(work, mover, table) for table in tables]
    try:
        return [turn.result() for turn in turns]
    finally:
        # After Ctrl-C, which does not wait for the files in progress, none may be registered.
        mover.stop()
        pool.shutdown(wait=False, cancel_futures=True)
        if all(turn.done() for turn in turns):
            mover.close()
