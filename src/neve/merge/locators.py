"""Where a key's row is now: what the events of a batch meet, and what becomes of them.

A locator is asked once for a batch. It adds to each key's newest event the sequence of the mirror's
row and of the key's tombstone, and decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from neve.merge import transforms as tr
from neve.merge.shape import Shape, barrier_column, quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from neve.merge.index_locator import IndexLocator

    Task = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]
    Locator: TypeAlias = "IndexLocator | ScanLocator"


@dataclass(frozen=True)
class Decided:
    """Each key's newest event, what it meets and what becomes of it: nothing is computed yet.

    Whatever decided, there are DISPOSITION, ROW_FILE and ROW_POSITION, and what is counted: EVENTS,
    OVERTAKEN, KNOWN_KEY and others of `columns.SUMMED`.
    """

    frame: DataFrame
    # What is still to be done to the frame's batches in Python. A writer does it in its own tasks,
    # so that rows go there once.
    task: Task | None = None


@dataclass(frozen=True)
class ScanLocator:
    """Joins the batch with the keys of the whole mirror and of all tombstones."""

    mirror: DataFrame | None
    tombstones: DataFrame | None

    # Columns by which events are distributed, beside the keys.
    partition_by = ()

    def distributed(self, rows: DataFrame, shape: Shape) -> DataFrame:
        """Bring events that are looked up together into one partition, as the join needs them."""
        return rows.repartition(*map(quoted, shape.keys))

    def planned(self, session: SparkSession) -> AbstractContextManager[None]:  # noqa: ARG002 - as IndexLocator
        """Have Spark plan jobs of this locator the best way."""
        return nullcontext()

    def decided(self, reduced: DataFrame, shape: Shape, barrier: tuple[str, ...] | None) -> Decided:
        """Find what each key has now, and decide. The barrier is the newest TRUNCATE."""
        met = tr.located(reduced, self.mirror, self.tombstones, shape)
        return Decided(tr.disposed(met, shape, barrier_column(barrier, shape)))
