"""Run a plain function over items: in Spark's tasks, or in this process where that is faster."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

from neve.errors import NeveError, StorageError
from neve.lake.workers import keep_zip_directories

if TYPE_CHECKING:
    from neve.lake.lake import Lake

Item = TypeVar("Item")
Result = TypeVar("Result")

# Starting a job costs more than reading so many keys here.
LOCAL_ROWS = 256 * 1024


class TaskRunner(Protocol):
    """Runs a function over items. Functions, items and results must be picklable."""

    @property
    def parallelism(self) -> int:
        """How many tasks run side by side."""

    def run(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Return what the function returns for each item, in order.

        Raises:
            NeveError: what the function raised.
        """


class LocalTasks:
    """Runs the items one after the other, in this process."""

    parallelism = 1

    def run(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        return [_run_task(function, item) for item in items]


@dataclass(frozen=True)
class SparkTasks:
    """Runs each item in a Spark task; Spark moves the items and the results, no rows."""

    lake: Lake

    @property
    def parallelism(self) -> int:
        return self.lake.spark.sparkContext.defaultParallelism

    def run(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        if not items:
            return []
        # Pickled here, so that Spark's own pickler does not take modules by value.
        code, sent = pickle.dumps(function), [pickle.dumps(item) for item in items]

        def work(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            keep_zip_directories()
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    outcome = pickle.dumps(_outcome(code, sent[number]))
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


def runner_for(lake: Lake, rows: int) -> TaskRunner:
    """Choose by how many rows the tasks read."""
    return LocalTasks() if rows <= LOCAL_ROWS else SparkTasks(lake)


def _outcome(code: bytes, sent: bytes) -> Any:
    function, item = pickle.loads(code), pickle.loads(sent)  # noqa: S301 - pickled by the driver
    try:
        return _run_task(function, item)
    except NeveError as error:
        return error


def _run_task(function: Callable[[Item], Result], item: Item) -> Result:
    try:
        return function(item)
    except OSError as error:
        raise StorageError(f"a task cannot read or write: {error}", retryable=True) from error
