"""A lake whose tables have a health, and can be maintained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.errors import UsageError
from neve.lake import Lake

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from neve.lake.unconfirmed import UnconfirmedWrite
    from neve.upkeep.health import TableHealth
    from neve.upkeep.lost_tables import LostTableReport
    from neve.upkeep.maintainer import MaintenanceReport
    from neve.upkeep.plan import TablePlan as MaintenancePlan
    from neve.upkeep.table_repair import RepairReport


class MaintainedLake(Lake):
    """Adds health and maintenance."""

    def unconfirmed_writes(self) -> list[UnconfirmedWrite]:
        """Return the direct writes that `neve recover` has yet to look for."""
        raise NotImplementedError

    def recover_table(
        self,
        table: str,
        *,
        location: str | None = None,
        metadata_file: str | None = None,
        dry_run: bool = False,
        roll_back: bool = False,
    ) -> LostTableReport | RepairReport:
        """Register a table again whose catalog entry was lost; repair one that is in the catalog.

        The same as `neve recover --table`. Never registers over a table that exists. Of one that
        exists a mirror's index is rebuilt if it is missing or wrong, and a manifest that cannot be
        read is named, with the newest version that can be read and what going back would lose.

        Args:
            location: where the table lies; None: where the catalog puts tables of this name.
            metadata_file: the metadata file to use; None: the newest one.
            dry_run: only say what would be done.
            roll_back: go back to the newest version that can be read, if the current one cannot.

        Raises:
            ConflictError: there is such a table, and a file for it was named; or nothing says
                which file is the newest.
            NotFoundError: there is no metadata file.
            UsageError: `roll_back`, and there is nothing to roll back.
        """
        from neve.upkeep.lost_tables import (
            is_registered,
            plan_lost_table,
            planned_report,
            register_lost_table,
        )
        from neve.upkeep.table_repair import repair_table

        ref = self.ref(table)
        if not (location or metadata_file) and is_registered(self, ref):
            return repair_table(
                self,
                ref,
                dry_run=dry_run,
                roll_back=roll_back,
                unconfirmed=self.unconfirmed_writes,
            )
        if roll_back:
            raise UsageError(
                f"{ref.name} is to be registered: there is nothing to roll back",
                hint="leave out --roll-back",
            )
        plan = plan_lost_table(self, ref, location, metadata_file)
        if dry_run:
            return planned_report(plan)
        return register_lost_table(self, ref, plan, self.unconfirmed_writes)

    def unregistered_tables(self) -> list[str]:
        """Name the tables that lie in the warehouse and are not in the catalog.

        `recover_table` registers one of them. Where `catalog.warehouse` is no directory or address
        of a store, as a REST catalog's may be, none are named.

        Raises:
            NeveError: the catalog or the store cannot be asked.
        """
        from neve.upkeep.unregistered import unregistered_tables

        return unregistered_tables(self)

    def health(self, *tables: str, listing: bool = False) -> list[TableHealth]:
        """Score tables by what makes them slow or large, and say what would help.

        The same as `neve health`. Reads metadata only, without a JVM, and changes nothing. A table
        that cannot be read has the score 0 and an `error`.

        Args:
            tables: names, patterns such as `otel.*`, or namespaces; none means all tables.
            listing: list the files of each table, too, for those that no snapshot names.

        Raises:
            NotFoundError: a name or pattern fits no table.
        """
        from neve.upkeep.health import check_health

        return check_health(self, tables, listing=self.unconfirmed_writes if listing else None)

    def plan_maintenance(self, *tables: str, max_bytes: int | None = None) -> list[MaintenancePlan]:
        """Say what is to be done to tables, why, and with what effect. Writes nothing.

        The same as `neve maintain --dry-run`.

        Args:
            tables: names, patterns such as `otel.*`, or namespaces; none means all tables.
            max_bytes: of all rewrites together; what is beyond is deferred.
        """
        from neve.upkeep.plan import plan_maintenance

        return plan_maintenance(
            self, tables, max_bytes=max_bytes, unconfirmed=self.unconfirmed_writes
        )

    def maintain(
        self,
        *tables: str,
        plans: Sequence[MaintenancePlan] | None = None,
        max_bytes: int | None = None,
        max_minutes: float | None = None,
        stop: threading.Event | None = None,
    ) -> list[MaintenanceReport]:
        """Keep tables fast and small; each action is a commit of its own.

        The same as `neve maintain`. It can be killed at any moment and run again. What loses to
        another writer is tried again in smaller parts, and left for the next time then. The report
        of a table that failed has an `error`; all others had their turn.

        Args:
            plans: carry out these, of `plan_maintenance`, instead of planning anew.
            max_bytes: of all rewrites together.
            max_minutes: nothing is begun after so many minutes.
            stop: once it is set, nothing more is begun.
        """
        from neve.upkeep.maintainer import Maintainer

        if plans is None:
            plans = self.plan_maintenance(*tables, max_bytes=max_bytes)
        if not any(plan.actions for plan in plans):
            return Maintainer(self).carry_out(plans)
        maintainer = Maintainer(
            self,
            groups_at_once=_groups_at_once(self.spark.sparkContext.defaultParallelism),
            max_seconds=None if max_minutes is None else 60 * max_minutes,
            stop=stop,
        )
        return maintainer.carry_out(plans)


def _groups_at_once(cores: int) -> int:
    """Return how many groups of files are rewritten together: some write while others commit."""
    return min(16, 2 * max(1, cores))
