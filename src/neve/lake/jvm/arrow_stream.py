"""Run a query on Spark so that its rows arrive piece by piece, and Ctrl-C cancels it.

PySpark brings whole results here, and an interrupt while it does waits for the end of the query.
"""

from __future__ import annotations

import socket
import struct
import threading
import uuid
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors.exceptions.captured import UnknownException, convert_exception
from pyspark.serializers import read_int, write_int
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.util import local_connect_and_auth

from neve.lake import jvm
from neve.lake.jvm.changed_rows import changed_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

# A cancelled write removes its files, if it is given the time.
_CANCEL_SECONDS = 0.5
# Up to so many rows are taken from the first partitions, as far as they are needed.
_MOST_TAKEN = 1000
_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_NEXT_PARTITION, _END = 1, 0


class Query:
    """A query that runs on Spark.

    Calls into Java are made on threads of their own, so that an interrupt never leaves this
    thread's connection in the middle of an answer.
    """

    def __init__(self, session: SparkSession, make_frame: Callable[[], DataFrame]) -> None:
        self._session = session
        self._context: Any = session.sparkContext
        self._gateway: Any = self._context._gateway
        self._group = f"neve-{uuid.uuid4()}"
        self.frame, self.schema = self._run(lambda: _analyzed(make_frame()))

    def count(self) -> int:
        """Count the rows, which runs the query again."""
        return self._run(self.frame.count)

    def changed_rows(self) -> int | None:
        """Return how many rows a command that ran to its end has changed, if that is known."""
        return self._run(lambda: changed_rows(self.frame))

    def table(self) -> pa.Table:
        """Bring the whole result here, where it must fit into memory."""
        return self._run(self.frame.toArrow)

    def batches(self, limit: int | None = None) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows in the query's order; closing the generator cancels the query.

        One partition after the other is computed and brought here, and the next meanwhile.

        Args:
            limit: more rows than these are not needed, though they may come.
        """
        if limit is not None and 0 < limit <= _MOST_TAKEN:
            yield from self._first_batches(limit)
        else:
            yield from self._all_batches()

    def _first_batches(self, limit: int) -> Iterator[pa.RecordBatch]:
        def take() -> list[bytes]:
            frame = self.frame.limit(limit) if self._is_sorted() else self.frame
            with self._batch_rows(limit):
                rdd = self._arrow_rdd(frame)
            # No batch is empty: so many have enough rows.
            return list(rdd.toJavaRDD().take(limit))

        yield from map(self._decoded, self._run(take))

    @contextmanager
    def _batch_rows(self, most: int) -> Iterator[None]:
        before = str(self._session.conf.get(_BATCH_ROWS))
        self._session.conf.set(_BATCH_ROWS, most)
        try:
            yield
        finally:
            self._session.conf.set(_BATCH_ROWS, before)

    def _all_batches(self) -> Iterator[pa.RecordBatch]:
        prefetch_next = True

        def serve() -> Any:
            rdd = self._arrow_rdd(self.frame)
            return self._gateway.jvm.PythonRDD.toLocalIteratorAndServe(rdd, prefetch_next)

        port, secret, server = self._run(serve)
        stream, connection = local_connect_and_auth(port, secret)
        ended = False
        try:
            # A partition may take any time.
            connection.settimeout(None)
            with telling_of_end():
                while self._asks_for_partition(stream, server):
                    for batch in read_partition(stream):
                        yield self._decoded(batch)
            ended = True
        finally:
            _close(stream, connection)
            if not ended:
                self.cancel()

    def _asks_for_partition(self, stream: IO[bytes], server: Any) -> bool:
        write_int(_NEXT_PARTITION, stream)
        stream.flush()
        answer = read_int(stream)
        if answer not in (_NEXT_PARTITION, _END):
            try:
                self._run(server.getResult)
            except Py4JJavaError as error:
                raise _telling_cause(error) from error
        return bool(answer == _NEXT_PARTITION)

    def _decoded(self, batch: bytes) -> pa.RecordBatch:
        return pa.ipc.read_record_batch(pa.py_buffer(batch), self.schema)

    def _is_sorted(self) -> bool:
        """Tell whether Spark can find the first rows without sorting all of them."""
        plan = self.frame._jdf.queryExecution().optimizedPlan()
        if plan.nodeName() == "Project":
            plan = plan.child()
        return bool(plan.nodeName() == "Sort")

    def _arrow_rdd(self, frame: DataFrame) -> Any:
        """Return an RDD of Arrow batches, whose tasks have this session's settings.

        Spark hands them to tasks as local properties, but only for actions of its own.
        """
        settings = self._session._jsparkSession.sessionState().conf().getAllConfs()
        as_java = self._gateway.jvm.scala.jdk.javaapi.CollectionConverters.asJava
        self._context._jsc.sc().getLocalProperties().putAll(as_java(settings))
        return frame._jdf.toArrowBatchRdd()

    def _run(self, work: Callable[[], T]) -> T:
        """Call into Java on another thread; when this one is interrupted, cancel the call."""
        outcome: Future[T] = Future()

        def call() -> None:
            try:
                self._context.setJobGroup(self._group, "neve sql", interruptOnCancel=True)
                outcome.set_result(work())
            except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
                outcome.set_exception(error)

        try:
            threading.Thread(target=call, name="neve-runs-query", daemon=True).start()
            return outcome.result()
        except BaseException:
            if not outcome.done():
                self.cancel()
                wait([outcome], timeout=_CANCEL_SECONDS)
            raise

    def cancel(self) -> None:
        """Cancel the jobs that run, and those that would follow."""

        def cancel() -> None:
            self._context._jsc.sc().cancelJobGroupAndFutureJobs(self._group)

        jvm.on_own_connection(cancel, seconds=_CANCEL_SECONDS)


def _analyzed(frame: DataFrame) -> tuple[DataFrame, pa.Schema]:
    schema = to_arrow_schema(frame.schema, error_on_duplicated_field_names_in_struct=True)
    return frame, schema


def _telling_cause(error: Py4JJavaError) -> Exception:
    """Return the first cause that PySpark has a class for: the outer ones say that a job failed."""
    java = error.java_exception
    while java is not None:
        cause: Exception = convert_exception(java)
        if not isinstance(cause, UnknownException):
            return cause
        java = java.getCause()
    return error  # type: ignore[no-any-return]


def read_partition(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the batches of one partition. Raises EOFError where the stream ends within it."""
    while (length := read_int(stream)) >= 0:
        batch = stream.read(length)
        if len(batch) < length:
            raise EOFError
        yield batch


@contextmanager
def telling_of_end() -> Iterator[None]:
    """Say what it means that the stream ended: a JVM that was killed sends no reason."""
    try:
        yield
    except (EOFError, ConnectionError, struct.error) as error:
        raise Py4JNetworkError("Java has ended before the last row") from error


def _close(stream: IO[bytes], connection: socket.socket) -> None:
    # Java may have closed it, or still write to it.
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    with suppress(OSError):
        stream.close()
    connection.close()
