"""The telemetry tables, made on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.consolidate.spec import ConsolidateSpec
from neve.errors import NotFoundError
from neve.lake.staging import StagingTable, ensure_staging_table
from neve.publish.telemetry_tables import telemetry_table

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from neve.lake import Lake


def ensure_telemetry_table(lake: Lake, spec: ConsolidateSpec, name: str) -> StagingTable:
    """Return a telemetry table, made now if it does not exist, with its promoted columns."""
    wanted = telemetry_table(spec.namespace, name, spec.promotions)
    return ensure_staging_table(lake.profile, lake.catalog(), wanted)


class OpenTables:
    """The telemetry tables of a worker, kept from run to run: metadata is read when it changes."""

    def __init__(self, lake: Lake, spec: ConsolidateSpec) -> None:
        self._lake = lake
        self._spec = spec
        # With the schema that was seen to have all columns.
        self._tables: dict[str, tuple[StagingTable, Schema]] = {}

    def open(self, name: str) -> StagingTable:
        """Return a table as it is now; made, or given the columns that it lacks."""
        if name in self._tables:
            table, schema = self._tables[name]
            try:
                table.refresh()
            except NotFoundError:
                # Dropped, or created again: the table of that name is another one now.
                del self._tables[name]
            else:
                if table.metadata.schema() == schema:
                    return table
        table = ensure_telemetry_table(self._lake, self._spec, name)
        self._tables[name] = table, table.metadata.schema()
        return table
