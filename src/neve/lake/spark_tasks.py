"""Run a plain function over items: in tasks of Spark, or, where there is little to do, here."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

from neve.errors import NeveError, StorageError

if TYPE_CHECKING:
    from neve.lake import Lake

Item = TypeVar("Item")
Result = TypeVar("Result")

# Starting a job costs more than reading so many keys here.
LOCAL_ROWS = 256 * 1024


class Runner(Protocol):
    """Where work is done; what functions and items are must be picklable."""

    @property
    def parallelism(self) -> int:
        """How many tasks run side by side."""

    def run(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Return what the function returns for each item, in order.

        Raises:
            NeveError: what the function raised.
        """


class LocalRunner:
    """One after the other, in this process."""

    parallelism = 1

    def run(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        return [_done(function, item) for item in items]


@dataclass(frozen=True)
class SparkRunner:
    """An item a task; Spark moves the items and the results, no rows."""

    lake: Lake

    @property
    def parallelism(self) -> int:
        return self.lake.spark.sparkContext.defaultParallelism

    def run(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        if not items:
            return []
        # Pickled here, so that Spark's own pickler does not take modules by value.
        sent = [pickle.dumps((function, item)) for item in items]

        def work(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    outcome = pickle.dumps(_outcome(sent[number]))
                    yield pa.RecordBatch.from_pydict({"number": [number], "outcome": [outcome]})

        count = len(items)
        with self.lake.explaining():
            numbers = self.lake.spark.range(0, count, 1, count)
            rows = numbers.mapInArrow(work, "number BIGINT, outcome BINARY").toArrow()
        # Pickled by our own tasks a moment ago.
        outcomes = {row["number"]: pickle.loads(row["outcome"]) for row in rows.to_pylist()}  # noqa: S301
        for number in range(count):
            if isinstance(outcomes[number], NeveError):
                raise outcomes[number]
        return [outcomes[number] for number in range(count)]


def runner_for(lake: Lake, rows: int) -> Runner:
    """Choose by how many rows are to be read."""
    return LocalRunner() if rows <= LOCAL_ROWS else SparkRunner(lake)


def _outcome(sent: bytes) -> Any:
    function, item = pickle.loads(sent)  # noqa: S301 - pickled by the driver
    try:
        return _done(function, item)
    except NeveError as error:
        return error


def _done(function: Callable[[Item], Result], item: Item) -> Result:
    try:
        return function(item)
    except OSError as error:
        raise StorageError(f"the index cannot be written: {error}", retryable=True) from error
