"""Statements on a DuckDB connection that Ctrl-C can cancel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb
import pyarrow as pa

from neve.errors import SqlError
from neve.query.answer import Answer
from neve.query.duckdb_connection import (
    connect,
    connect_shared,
    forget_shared_database,
    load_extension,
)
from neve.query.sql_types import arrow_type

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
        self._connection = connect_shared()
        self.closed = False
        self._reads_stores = False
        self._secrets: list[str] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="duckdb")

    def run(self, sql: str, columns: Columns | None) -> Answer:
        """Execute a query as far as its first batch; the answer closes this execution."""
        reader = self._wait(lambda: self._connection.execute(sql).to_arrow_reader(_ROWS_A_BATCH))
        batches = _Batches(self, reader, _schema(reader.schema, columns))
        return Answer(batches.schema, batches, "duckdb", lambda: self._count(sql))

    def next_batch(self, reader: Any, schema: pa.Schema) -> pa.RecordBatch | None:
        """Return the next rows of a query in another schema; None: there are no more."""

        def read() -> pa.RecordBatch | None:
            batch = next(reader, None)
            return None if batch is None else _converted(batch, schema)

        return self._wait(read)

    def create_secret(self, sql: str) -> None:
        """Execute a statement that makes a secret, which no other query can use."""
        if not self._reads_stores:
            self._connection.close()
            self._connection = connect()
            load_extension(self._connection, "httpfs")
            self._reads_stores = True
        self._secrets.append(sql)
        self._wait(lambda: self._connection.execute(sql))

    def close(self) -> None:
        """Cancel what still runs. Idempotent."""
        if self.closed:
            return
        self.closed = True
        self._connection.interrupt()
        self._thread.shutdown()
        self._connection.close()

    def _count(self, sql: str) -> int:
        """Count a query's rows over the same versions of its tables, also when this is closed."""
        other = Execution()
        try:
            for secret in self._secrets:
                other.create_secret(secret)
            return sum(
                batch.column(0)[0].as_py()
                for batch in other.run(f"SELECT count(*) FROM ({sql})", None).batches  # noqa: S608 - translated
            )
        finally:
            other.close()

    def _wait(self, work: Callable[[], T]) -> T:
        try:
            return self._thread.submit(work).result()
        except (duckdb.Error, pa.ArrowException) as error:
            if isinstance(error, (duckdb.FatalException, duckdb.InternalException)):
                forget_shared_database()
            raise SqlError(f"DuckDB: {_one_line(error)}") from error


class _Batches:
    """The rows of a query. The first batch is read at once, so that what fails before is known."""

    def __init__(self, execution: Execution, reader: Any, schema: pa.Schema) -> None:
        self.schema = schema
        self._execution = execution
        self._reader = reader
        self._first = self._read()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        batch, self._first = self._first, None
        if batch is None:
            batch = self._read()
        if batch is None:
            raise StopIteration
        return batch

    def close(self) -> None:
        self._execution.close()

    def _read(self) -> pa.RecordBatch | None:
        if self._execution.closed:
            return None
        try:
            batch = self._execution.next_batch(self._reader, self.schema)
        except BaseException:
            self.close()
            raise
        if batch is None:
            self.close()
        return batch


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
