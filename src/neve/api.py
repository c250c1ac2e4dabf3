"""The Python API: what `neve.open` returns, and the types of what its methods return.

The command line calls these methods too, so that both do the same.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Literal

from neve.upkeep.maintained_lake import MaintainedLake
from neve.versions.versioned_lake import VersionedLake

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence
    from datetime import datetime

    import pyarrow as pa

    from neve.consolidate.report import ReplayReport, TableResult
    from neve.consolidate.report import Report as ConsolidationReport
    from neve.direct.recover import RecoveryReport
    from neve.direct.writer import Writer
    from neve.lake.followers import FollowerState, OnFailure
    from neve.lake.tables import Column, TableDescription, TableSummary
    from neve.lake.unconfirmed import UnconfirmedWrite
    from neve.merge.report import Preview as MergePreview
    from neve.merge.report import TableReport as MergeReport
    from neve.move.report import CheckReport, MoveReport
    from neve.move.report import PlanReport as MovePlan
    from neve.publish.audit_result import AuditResult
    from neve.publish.batch import Outcome
    from neve.publish.staged_list import StagedBatch
    from neve.upkeep.findings import Finding
    from neve.upkeep.health import TableHealth
    from neve.upkeep.lost_tables import LostTableReport
    from neve.upkeep.maintainer import MaintenanceReport
    from neve.upkeep.plan import TablePlan as MaintenancePlan
    from neve.upkeep.table_repair import RepairReport
    from neve.upkeep.upkeep import UpkeepReport
    from neve.versions.arguments import Mode
    from neve.versions.follow import Batch, Follower
    from neve.versions.follow_target import TargetReport
    from neve.versions.resolve import Version

__all__ = [
    "AuditResult",
    "Batch",
    "CheckReport",
    "Column",
    "ConsolidationReport",
    "Finding",
    "Follower",
    "FollowerState",
    "LostTableReport",
    "MaintenancePlan",
    "MaintenanceReport",
    "MergePreview",
    "MergeReport",
    "MovePlan",
    "MoveReport",
    "OpenLake",
    "Outcome",
    "RecoveryReport",
    "RepairReport",
    "ReplayReport",
    "StagedBatch",
    "TableDescription",
    "TableHealth",
    "TableResult",
    "TableSummary",
    "TargetReport",
    "UpkeepReport",
]

# Where the types above are: imported when they are first asked for, since their modules load
# libraries that a command such as `neve tables` does not need.
_LOCATIONS = {
    "AuditResult": (".publish.audit_result", "AuditResult"),
    "Batch": (".versions.follow", "Batch"),
    "CheckReport": (".move.report", "CheckReport"),
    "Column": (".lake.tables", "Column"),
    "ConsolidationReport": (".consolidate.report", "Report"),
    "Finding": (".upkeep.findings", "Finding"),
    "Follower": (".versions.follow", "Follower"),
    "FollowerState": (".lake.followers", "FollowerState"),
    "MaintenancePlan": (".upkeep.plan", "TablePlan"),
    "MaintenanceReport": (".upkeep.maintainer", "MaintenanceReport"),
    "MergePreview": (".merge.report", "Preview"),
    "MergeReport": (".merge.report", "TableReport"),
    "MovePlan": (".move.report", "PlanReport"),
    "MoveReport": (".move.report", "MoveReport"),
    "Outcome": (".publish.batch", "Outcome"),
    "RecoveryReport": (".direct.recover", "RecoveryReport"),
    "ReplayReport": (".consolidate.report", "ReplayReport"),
    "StagedBatch": (".publish.staged_list", "StagedBatch"),
    "TableDescription": (".lake.tables", "TableDescription"),
    "TableHealth": (".upkeep.health", "TableHealth"),
    "TableResult": (".consolidate.report", "TableResult"),
    "TableSummary": (".lake.tables", "TableSummary"),
    "TargetReport": (".versions.follow_target", "TargetReport"),
    "LostTableReport": (".upkeep.lost_tables", "LostTableReport"),
    "RepairReport": (".upkeep.table_repair", "RepairReport"),
    "UpkeepReport": (".upkeep.upkeep", "UpkeepReport"),
}


def __getattr__(name: str) -> Any:
    if name not in _LOCATIONS:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    module, attribute = _LOCATIONS[name]
    return getattr(importlib.import_module(module, "neve"), attribute)


class OpenLake(VersionedLake, MaintainedLake):
    """A lake and everything that can be done with it."""

    def read(self, statement: str, engine: Literal["auto", "spark", "duckdb"] = "auto") -> pa.Table:
        """Run a statement and bring the whole result here, where it must fit into memory.

        The same as `neve sql`.

        Args:
            engine: `auto` takes DuckDB, which needs no JVM, for reads whose answer is the same as
                Spark's, and Spark for all else.
        """
        import pyarrow as pa

        from neve.query.run import run

        answer = run(self, statement, engine)
        return pa.Table.from_batches(answer.batches, answer.schema)

    def consolidate(self, *, wait: bool = True) -> ConsolidationReport:
        """Turn the requests that are sealed in the buffer into rows, exactly once.

        The same as `neve consolidate --once`. It can be killed at any moment and run again.

        Args:
            wait: wait for a worker that consolidates the same signal. Without it, leave that
                signal to the other worker; the report's `left_to_others` names it.

        Returns:
            What was done. `report.failed` says whether a table failed or an audit held rows back.
        """
        from neve.consolidate.consolidator import Consolidator, SparkRunner
        from neve.consolidate.spec import consolidate_spec

        worker = Consolidator(self, consolidate_spec(self.settings), SparkRunner(self))
        try:
            return worker.run_once(wait=wait)
        finally:
            worker.ledger.write()

    def replay(self, table: str, since: datetime | None = None) -> ReplayReport:
        """Write retained segments again into a telemetry table that lacks them, exactly once.

        The same as `neve consolidate --replay`. `buffer.retain_seconds` keeps the segments.

        Args:
            since: only segments with a request received since then; UTC if it has no zone.
        """
        from neve.consolidate.consolidator import Consolidator, SparkRunner
        from neve.consolidate.replay import replay_table
        from neve.consolidate.spec import consolidate_spec

        worker = Consolidator(self, consolidate_spec(self.settings), SparkRunner(self))
        return replay_table(worker, table, since)

    def look_after_tables(self) -> UpkeepReport:
        """Expire old snapshots of the telemetry tables and remove what is not needed any more.

        `neve consolidate --once` does it at its end; `neve run` does it by itself.
        """
        from neve.upkeep.spec import upkeep_spec
        from neve.upkeep.upkeep import Upkeep

        spec = upkeep_spec(self.settings)
        return Upkeep(self, spec, unconfirmed_writes=self.unconfirmed_writes).run()

    def unconfirmed_writes(self) -> list[UnconfirmedWrite]:
        """Return the direct writes that `neve recover` has yet to look for; upkeep leaves them.

        Raises:
            CorruptionError: a record cannot be read, so nobody knows which files it names.
        """
        from neve.direct.recovery import unconfirmed_writes

        return unconfirmed_writes(self.profile, self.settings.direct.recovery)

    def staged(self, table: str | None = None) -> list[StagedBatch]:
        """List the batches that are staged, or held back by an audit.

        Args:
            table: one table; without it, all tables of telemetry.
        """
        from neve.publish.staged_list import list_staged

        return list_staged(self, table)

    def staged_rows(self, table: str, batch_id: str, limit: int = 20) -> pa.Table:
        """Read the first rows of a held batch."""
        from neve.publish.staged_batches import show

        return show(self, table, batch_id, limit)

    def publish_staged(self, table: str, batch_id: str) -> Outcome:
        """Publish a held batch after all, exactly once.

        Raises:
            NotFoundError: the table holds no such batch.
        """
        from neve.publish.staged_batches import release

        return release(self, table, batch_id)

    def discard_staged(self, table: str, batch_id: str) -> None:
        """Give up a held batch. Its rows are never published.

        Raises:
            NotFoundError: the table holds no such batch.
        """
        from neve.publish.staged_batches import discard

        discard(self, table, batch_id)

    def follow(
        self,
        table: str,
        name: str,
        *,
        mode: Mode = "changes",
        keys: Sequence[str] | None = None,
        since: Version | None = None,
        until: Version | None = None,
        max_commits: int = 100,
        wait: float | None = None,
        stop: threading.Event | None = None,
    ) -> Follower:
        """Follow a table: iterate over what is returned, or call its `to_table`.

        Each batch has `rows`, a DataFrame of changes, and `commit()`, which moves the tag
        `neve_follow_<name>` of the table. Only one consumer can use a name.

        Args:
            name: of the follower, whose position the table keeps.
            mode: `changes`, `net` or `appends`, as `lake.changes` takes it.
            keys: columns that identify a row; without them, those the table itself names.
            since: where a follower begins that has committed nothing; without it, at the beginning.
            until: the last version to be read, or a branch to be followed; without it, `main`.
            max_commits: a batch has no more commits than this.
            wait: look for new commits after so many seconds; without it, iteration ends when all
                commits are read.
            stop: once it is set, iteration ends.

        Raises:
            UsageError: the name cannot be part of a tag's name.
        """
        from neve.versions.arguments import parse_mode, parse_version
        from neve.versions.follow import Follower, as_names
        from neve.versions.followed_table import FollowSpec

        ref = self.ref(table)
        start, end = (None if each is None else parse_version(each) for each in (since, until))
        mode = parse_mode(ref.name, mode)
        spec = FollowSpec(ref, name, mode, as_names(keys), start, end, max_commits, wait)
        return Follower(self, spec, stop)

    def followers(
        self, table: str | None = None, on_failure: OnFailure | None = None
    ) -> list[FollowerState]:
        """List the followers of a table, or of all tables, and how far they are behind.

        The same as `neve follow list`. `on_failure`, else the log, is told of unreadable tables.
        """
        from neve.lake.followers import list_followers

        return list_followers(self, table, on_failure)

    def drop_follower(self, table: str, name: str) -> FollowerState:
        """Forget a follower; return what it was. The table that it kept stays as it is.

        The same as `neve follow drop`.

        Raises:
            NotFoundError: the table has no such follower.
        """
        from neve.lake.followers import drop_follower

        return drop_follower(self, table, name)

    def merge(
        self,
        *tables: str,
        rebuild: bool = False,
        retry_rejected: bool = False,
        accept_loss: bool = False,
        strategy: Literal["auto", "index", "scan", "merge"] = "auto",
    ) -> list[MergeReport]:
        """Merge the waiting changes into the named mirrors, or into all configured ones.

        The same as `neve merge --once`. Every mirror gets its turn before a failure is raised.

        Args:
            rebuild: replace each mirror's rows by its whole changelog, in one commit.
            retry_rejected: instead, merge the events that were set aside and can be taken now.
            accept_loss: rebuild also of a changelog of which it cannot be proven that it holds all
                its events; the report's notes say why not.
            strategy: how rows are found and replaced; `auto` takes the cheapest.

        Raises:
            NeveError: a mirror failed; its table is as its last commit left it.
        """
        from neve.merge.once import merge_once

        reports = merge_once(
            self,
            tables,
            rebuild=rebuild,
            retry_rejected=retry_rejected,
            accept_loss=accept_loss,
            strategy=strategy,
        )
        for report in reports:
            if report.error:
                raise report.error
        return reports

    def preview_merge(
        self,
        *tables: str,
        rebuild: bool = False,
        retry_rejected: bool = False,
        accept_loss: bool = False,
    ) -> list[MergePreview]:
        """Say what the next commit to each mirror would change. Writes nothing.

        The same as `neve merge --dry-run`.

        Raises:
            NeveError: a mirror cannot be merged in its present state.
        """
        from neve.merge.once import preview_once

        previews = preview_once(
            self, tables, rebuild=rebuild, retry_rejected=retry_rejected, accept_loss=accept_loss
        )
        for preview in previews:
            if preview.error:
                raise preview.error
        return previews

    def move(
        self,
        *tables: str,
        to: str,
        location: str | None = None,
        existing: Literal["refuse", "extend", "replace"] = "refuse",
        rewrite: bool = True,
        verify: Literal["sample", "full"] = "sample",
        engine: Literal["local", "spark"] = "local",
        bytes_per_second: int | None = None,
        tables_at_once: int = 2,
    ) -> list[MoveReport]:
        """Move tables to another catalog and store; register each once its copy is proven.

        The same as `neve move`. The source is never written to. It can be killed at any moment
        and run again; when the tables have arrived, it does nothing.

        Args:
            tables: names, globs such as `shop.o*`, or namespaces.
            to: the name of a configured catalog.
            location: where the files of the one table are put.
            existing: what becomes of a table that the target has already.
            rewrite: without it nothing is copied: the target's store has all files already.
            verify: compare a sample, or all rows of every snapshot.
            engine: where manifests are rewritten.
            bytes_per_second: of all copies together.

        Raises:
            NeveError: a table could not be moved; all others had their turn.
        """
        from neve.move.moves import move_tables
        from neve.move.spec import Engine, Existing, MoveSpec, Verification

        spec = MoveSpec(
            to,
            location,
            rewrite,
            Existing(existing),
            Verification(verify),
            Engine(engine),
            bytes_per_second,
            tables_at_once,
        )
        reports = move_tables(self, tables, spec)
        for report in reports:
            if report.error:
                raise report.error
        return reports

    def plan_move(
        self,
        *tables: str,
        to: str,
        location: str | None = None,
        existing: Literal["refuse", "extend", "replace"] = "refuse",
        rewrite: bool = True,
    ) -> list[MovePlan]:
        """Say what moving tables would do, and what blocks it. Writes nothing.

        The same as `neve move --dry-run`.
        """
        from neve.move.moves import plan_moves
        from neve.move.spec import Existing, MoveSpec

        return plan_moves(self, tables, MoveSpec(to, location, rewrite, Existing(existing)))

    def verify_move(
        self, *tables: str, to: str, verify: Literal["sample", "full"] = "sample"
    ) -> list[CheckReport]:
        """Compare tables that were moved with their source, and with their files. Writes nothing.

        The same as `neve move verify`.
        """
        from neve.move.moves import verify_moved
        from neve.move.spec import MoveSpec, Verification

        return verify_moved(self, tables, MoveSpec(to, verification=Verification(verify)))

    def writer(self) -> Writer:
        """Open what writes telemetry without Spark: rows, or OTLP requests. Close it after use.

        With `catalog.type: none` it writes plain Parquet.
        """
        from neve.direct.writer import Writer

        return Writer.open(self.settings)

    def recover(self, *, dry_run: bool = False) -> list[RecoveryReport]:
        """Register files that were written directly and whose commit was not confirmed, once.

        The same as `neve recover`. It can be killed at any moment and run again. The report of a
        record that only a person can decide on has the outcome `left`.

        Args:
            dry_run: only say what would be done.
        """
        from neve.direct.recover import recover

        return recover(self.settings, dry_run=dry_run, progress=self.progress)

    def forget_recovery(self, record_id: str) -> RecoveryReport:
        """Drop a recovery record; its files stay where they are.

        The same as `neve recover --forget`.

        Raises:
            NotFoundError: there is no such record.
        """
        from neve.direct.recover import forget_record

        return forget_record(self.settings, record_id)
