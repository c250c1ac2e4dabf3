"""Statements on a DuckDB connection that Ctrl-C can cancel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb
import pyarrow as pa

from neve.errors import SqlError
from neve.query.answer import Answer
from neve.query.duckdb_connection import connect, load_extension
from neve.query.sql_types import arrow_type, of_duckdb

if TYPE_CHECKING:
    from neve.query.typed import Columns

_ROWS_A_BATCH = 8192
# What DuckDB's sums of whole numbers are in Arrow. Spark has no such type.
_HUGEINT = pa.decimal128(38, 0)

T = TypeVar("T")


class Execution:
    """A connection, and a thread that waits for DuckDB.

    While DuckDB works, Python delivers no signals to the thread that waits for it: the caller's
    thread must be another one, so that Ctrl-C reaches it.
    """

    def __init__(self) -> None:
        self._connection = connect()
        self._reads_stores = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="duckdb")

    def run(self, sql: str, columns: Columns | None) -> Answer:
        """Execute a query as far as its first batch."""
        reader = self._wait(lambda: self._connection.execute(sql).to_arrow_reader(_ROWS_A_BATCH))
        schema = _schema(reader.schema, columns)
        first = self._wait(lambda: next(reader, None))
        return Answer(schema, self._batches(reader, first, schema), "duckdb")

    def execute(self, sql: str) -> Columns:
        """Execute a statement; return the columns of its result."""
        result = self._wait(lambda: self._connection.execute(sql).description)
        return tuple((column[0], of_duckdb(column[1])) for column in result or ())

    def read_stores(self) -> None:
        """Load what reads object stores. Idempotent."""
        if not self._reads_stores:
            load_extension(self._connection, "httpfs")
            self._reads_stores = True

    def close(self) -> None:
        """Cancel what still runs. Idempotent."""
        self._connection.interrupt()
        self._thread.shutdown()
        self._connection.close()

    def _batches(
        self, reader: Any, batch: pa.RecordBatch | None, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        try:
            while batch is not None:
                yield _converted(batch, schema)
                batch = self._wait(lambda: next(reader, None))
        finally:
            self.close()

    def _wait(self, work: Callable[[], T]) -> T:
        try:
            return self._thread.submit(work).result()
        except (duckdb.Error, pa.ArrowException) as error:
            raise SqlError(f"DuckDB: {_one_line(error)}") from error


def _schema(schema: pa.Schema, columns: Columns | None) -> pa.Schema:
    if columns is not None:
        return pa.schema([(name, arrow_type(kind)) for name, kind in columns])
    return pa.schema(
        [(field.name, pa.int64() if field.type == _HUGEINT else field.type) for field in schema]
    )


def _converted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        array if array.type.equals(field.type) else array.cast(field.type)
        for array, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _one_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason")
