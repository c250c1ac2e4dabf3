"""Rows of many days in one file: a bound for the files that one sender's odd times can make.

Of the rows that are written together, those of the `MOST_DAYS` days with most rows get a file for
each day. All others share one, under the table's unpartitioned spec and sorted by time; compaction
rewrites it into days, within `days_of_a_rewrite`. See
docs/decisions/0020-far-off-days-share-a-file.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER_ID
from pyiceberg.typedef import Record

from neve.lake.partition_rows import PartitionRows
from neve.lake.row_order import RowOrder
from neve.limits import MIB

MOST_DAYS = 8
# The unpartitioned spec of a table that has none yet: it gets one before such files are committed.
UNASSIGNED_SPEC_ID = -1


def share_far_days(
    metadata: TableMetadata, days: Sequence[PartitionRows], time_column: str
) -> list[PartitionRows]:
    """Return the same rows in at most `MOST_DAYS` partitions of a day, and one of all other days.

    Args:
        days: the rows of each day, as indices into one table.
        time_column: the column of that table that its days are of.
    """
    if len(days) <= MOST_DAYS + 1:
        return list(days)
    # Of equal numbers of rows, the latest days: what comes late is mostly a day or two late.
    ranked = sorted(days, key=lambda one: (len(one.indices), one.partition[0]), reverse=True)
    own = {one.partition[0] for one in ranked[:MOST_DAYS]}
    far = pa.concat_arrays([one.indices for one in days if one.partition[0] not in own])
    times = days[0].table.column(time_column).take(far)
    order = RowOrder(UNSORTED_SORT_ORDER_ID, far.take(pc.sort_indices(times)))
    spec_id = unpartitioned_spec_id(metadata)
    shared = replace(days[0], partition=Record(), order=order, spec_id=spec_id)
    return [*(one for one in days if one.partition[0] in own), shared]


def days_of_a_rewrite(files: int, size: int) -> int:
    """Return how many days get files of their own when so many shared files are rewritten.

    As many as whoever wrote them could have written, or one for each mebibyte.
    """
    return max(MOST_DAYS * files, size // MIB)


def unpartitioned_spec_id(metadata: TableMetadata) -> int:
    """Return the id of a table's unpartitioned spec, or the one that stands for it."""
    ids = (spec.spec_id for spec in metadata.partition_specs if spec.is_unpartitioned())
    return next(ids, UNASSIGNED_SPEC_ID)


def lack_spec(files: Sequence[DataFile]) -> list[DataFile]:
    """Return the files that were written for a spec that their table did not have."""
    return [file for file in files if getattr(file, "spec_id", None) == UNASSIGNED_SPEC_ID]


def add_unpartitioned_spec(specs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the update that gives a table with these specs an unpartitioned one."""
    spec_id = 1 + max(spec["spec-id"] for spec in specs)
    return {"action": "add-spec", "spec": {"spec-id": spec_id, "fields": []}}
