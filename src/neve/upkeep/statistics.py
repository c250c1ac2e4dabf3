"""When the number of distinct values of columns is counted, for Spark's optimizer. Pure.

Spark reads these statistics with `spark.sql.cbo.enabled`, and only those of the very snapshot that
it reads. So they are worth their scan for tables that are read more often than they are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neve.errors import ConfigError

if TYPE_CHECKING:
    from neve.upkeep.observed_table import ObservedTable

_SKETCH = "apache-datasketches-theta-v1"


@dataclass(frozen=True)
class PlannedStatistics:
    """Statistics that the current snapshot lacks.

    Args:
        skipped: why they are not computed; empty: they are.
    """

    columns: tuple[str, ...]
    why: str
    skipped: str = ""


def plan_statistics(
    observed: ObservedTable, now: float, *, is_rewritten: bool
) -> PlannedStatistics | None:
    """Say which statistics are to be computed; None: the policy asks for none, or they are there.

    Args:
        is_rewritten: whether maintenance makes a new snapshot first, which has none.

    Raises:
        ConfigError: the policy names a column that the table does not have, or of a nested type.
    """
    columns = observed.policy.statistics
    ids = _checked_ids(observed, columns)
    snapshot_id = observed.metadata.current_snapshot_id
    if not columns or snapshot_id is None:
        return None
    if is_rewritten:
        why = "files are rewritten, and the new snapshot has no statistics"
    elif ids <= _counted_ids(observed, snapshot_id):
        return None
    else:
        why = f"snapshot {snapshot_id} has no statistics of {', '.join(columns)}"
    age = now - observed.metadata.snapshots[snapshot_id]["timestamp-ms"] / 1000
    settle = observed.policy.settle_seconds
    skipped = (
        f"the table was written {max(age, 0):,.0f} s ago, and statistics hold for one snapshot: "
        f"they are computed when nothing was written for {settle:,.0f} s"
    )
    return PlannedStatistics(columns, why, skipped if age < settle else "")


def _checked_ids(observed: ObservedTable, columns: tuple[str, ...]) -> set[int]:
    fields: Mapping[str, Any] = {each["name"]: each for each in observed.metadata.fields}
    for column in columns:
        if column not in fields or not isinstance(fields[column]["type"], str):
            raise ConfigError(
                f"upkeep.tables: {observed.name} has no column {column} of a plain type to "
                "compute statistics of",
                hint=f"see: neve describe {observed.name}",
            )
    return {fields[column]["id"] for column in columns}


def _counted_ids(observed: ObservedTable, snapshot_id: int) -> set[int]:
    """Return the columns whose distinct values were counted for a snapshot."""
    return {
        blob["fields"][0]
        for file in observed.metadata.document.get("statistics") or ()
        if file["snapshot-id"] == snapshot_id
        for blob in file.get("blob-metadata") or ()
        if blob["type"] == _SKETCH and len(blob["fields"]) == 1
    }
