"""For which rows of a table Iceberg's procedure is called that orders them along a Z curve. Pure.

The procedure takes every small file that a filter on rows meets. A day that is over bounds it: the
open hour stays out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from neve.lake.bounds import MICROSECONDS_OF
from neve.lake.identifier import quote_identifier
from neve.upkeep.layout import time_column, time_literal

if TYPE_CHECKING:
    from neve.lake.metadata_json import MetadataJson
    from neve.upkeep.compaction import FileGroup
    from neve.upkeep.observed_table import ObservedTable

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_UNITS_OF_A_DAY = {"day": 1, "hour": 24}


def closed_day(metadata: MetadataJson, group: FileGroup, settled: float) -> str | None:
    """Return the rows of the day that a group's own partition is of, as a condition.

    Args:
        settled: no day that ends later, in seconds since 1970, is over.

    Returns:
        None: the partition is of no day, or of one that is not over.
    """
    spec_id, values = group.partition
    types = {each["id"]: each["type"] for each in metadata.fields}
    for field, value in zip(_fields(metadata, spec_id), values, strict=False):
        units, type_ = _UNITS_OF_A_DAY.get(field["transform"]), types.get(field["source-id"])
        if units is None or type_ not in MICROSECONDS_OF or not isinstance(value, int):
            continue
        try:
            first = _EPOCH + timedelta(days=value // units)
            after = first + timedelta(days=1)
        except OverflowError:
            return None
        if after.timestamp() > settled:
            return None
        column = quote_identifier((metadata.column_names[field["source-id"]],))
        lower, upper = (time_literal(str(type_), each) for each in (first, after))
        return f"{column} >= {lower} AND {column} < {upper}"
    return None


def obstacle(observed: ObservedTable) -> str | None:
    """Say why days of a table cannot be put in Z order now; None: they can."""
    metadata = observed.metadata
    if time_column(metadata) is None:
        return None
    timed = {
        spec["spec-id"]
        for spec in metadata.partition_specs
        if any(field["transform"] in _UNITS_OF_A_DAY for field in spec["fields"])
    }
    others = sum(file.partition[0] not in timed for file in observed.layout.candidates)
    if others < observed.policy.min_files:
        return None
    return f"{others:,} small files are of no day, and would be rewritten with each"


def _fields(metadata: MetadataJson, spec_id: int) -> Sequence[Mapping[str, Any]]:
    specs = metadata.partition_specs
    return next((each["fields"] for each in specs if each["spec-id"] == spec_id), ())
