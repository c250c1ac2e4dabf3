"""The telemetry tables, made on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.consolidate.spec import ConsolidateSpec
from neve.lake.staging import StagingTable, ensure_staging_table
from neve.publish.telemetry_tables import telemetry_table

if TYPE_CHECKING:
    from neve.lake import Lake


def ensure_telemetry_table(lake: Lake, spec: ConsolidateSpec, name: str) -> StagingTable:
    """Return a telemetry table, made now if it does not exist, with its promoted columns."""
    wanted = telemetry_table(spec.namespace, name, spec.promotions)
    return ensure_staging_table(lake.profile, lake.catalog(), wanted)
