"""What the telemetry tables are: the same for consolidation and for writes without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from neve.lake.create import FEW_METADATA_FILES, TableSpec
from neve.lake.identifier import parse_identifier
from neve.telemetry.promote import Promotion, with_promoted_fields
from neve.telemetry.schemas import SCHEMAS

TABLE_PROPERTIES: Mapping[str, str] = MappingProxyType(
    {
        **FEW_METADATA_FILES,
        "write.parquet.compression-codec": "zstd",
        "commit.manifest-merge.enabled": "true",
    }
)
BLOOM_PROPERTY = "write.parquet.bloom-filter-enabled.column.trace_id"


def telemetry_table(namespace: str, name: str, promotions: Sequence[Promotion]) -> TableSpec:
    """Return a telemetry table as it should be, with its promoted columns."""
    schema = with_promoted_fields(SCHEMAS[name], promotions)
    bloom = {BLOOM_PROPERTY: "true"} if "trace_id" in schema.names else {}
    return TableSpec(
        (*parse_identifier(namespace), name),
        schema,
        partition_by_day="timestamp",
        sort_by=("service_name", "timestamp"),
        properties={**TABLE_PROPERTIES, **bloom},
    )
