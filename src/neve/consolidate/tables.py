"""The telemetry tables, made on demand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from neve.consolidate.spec import ConsolidateSpec
from neve.lake.create import FEW_METADATA_FILES, TableSpec, ensure_table
from neve.lake.staging import StagingTable
from neve.telemetry.promote import with_promoted_fields
from neve.telemetry.schemas import SCHEMAS

if TYPE_CHECKING:
    from neve.lake import Lake

TABLE_PROPERTIES: Mapping[str, str] = {
    **FEW_METADATA_FILES,
    "write.parquet.compression-codec": "zstd",
    "commit.manifest-merge.enabled": "true",
}
BLOOM_PROPERTY = "write.parquet.bloom-filter-enabled.column.trace_id"


def ensure_telemetry_table(lake: Lake, spec: ConsolidateSpec, name: str) -> StagingTable:
    """Return a telemetry table, made now if it does not exist, with its promoted columns."""
    schema = with_promoted_fields(SCHEMAS[name], spec.promotions)
    bloom = {BLOOM_PROPERTY: "true"} if "trace_id" in schema.names else {}
    table = ensure_table(
        lake.profile,
        lake.catalog(),
        TableSpec(
            (*spec.namespace.split("."), name),
            schema,
            partition_by_day="timestamp",
            sort_by=("service_name", "timestamp"),
            properties={**TABLE_PROPERTIES, **bloom},
        ),
    )
    return StagingTable(lake.profile, table)
