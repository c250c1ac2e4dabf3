"""Where a key's row is now: what the events of a batch meet, and what becomes of them.

A locator is asked once for a batch. It adds to each key's newest event the sequence of the mirror's
row and of the key's tombstone, and decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import types as T

from neve.lake.frames import map_batches
from neve.merge import transforms as tr
from neve.merge.shape import Shape, barrier_column, quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    Task = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


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
    added: T.StructType = field(default_factory=T.StructType)

    def as_frame(self) -> DataFrame:
        if self.task is None:
            return self.frame
        return map_batches(self.frame, self.task, T.StructType([*self.frame.schema, *self.added]))


class Locator(Protocol):
    """Finds rows."""

    @property
    def partition_by(self) -> tuple[str, ...]:
        """Columns by which events are distributed, beside the keys."""

    def distributed(self, rows: DataFrame, shape: Shape) -> DataFrame:
        """Bring events that are looked up together into one partition."""

    def planned(self, session: SparkSession) -> AbstractContextManager[None]:
        """Have Spark plan jobs of this locator the best way."""

    def decided(self, reduced: DataFrame, shape: Shape, barrier: tuple[str, ...] | None) -> Decided:
        """Find what each key has now, and decide. The barrier is the newest TRUNCATE."""


class ScanLocator:
    """Joins the batch with the keys of the whole mirror and of all tombstones."""

    partition_by = ()

    def __init__(self, mirror: DataFrame | None, tombstones: DataFrame | None) -> None:
        self._mirror = mirror
        self._tombstones = tombstones

    def distributed(self, rows: DataFrame, shape: Shape) -> DataFrame:
        # As the join needs them, too.
        return rows.repartition(*map(quoted, shape.keys))

    def planned(self, session: SparkSession) -> AbstractContextManager[None]:  # noqa: ARG002 - the port
        return nullcontext()

    def decided(self, reduced: DataFrame, shape: Shape, barrier: tuple[str, ...] | None) -> Decided:
        met = tr.located(reduced, self._mirror, self._tombstones, shape)
        return Decided(tr.disposed(met, shape, barrier_column(barrier, shape)))
