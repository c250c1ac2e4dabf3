"""Some requests of one signal, written together: each table by one commit.

Rows are gathered up to a bound and then written as data files; the commits come last. So a request
that becomes many gigabytes takes little memory, and nothing of it is seen until all is written.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from neve import limits
from neve.direct.request_rows import (
    IncomingRequest,
    Rejections,
    decode_requests,
    require_balance,
)
from neve.direct.results import RequestResult, TableResult, may_pass
from neve.direct.sink import RecordCounts
from neve.errors import NeveError, UnavailableError, UnbalancedError
from neve.lake.pending_rows import PendingRows, tables_to_write
from neve.observe.failures import failure_of
from neve.telemetry.promote import promote

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from neve.direct.deadline import Deadline
    from neve.direct.sink import Sink, TableWrite
    from neve.direct.spec import DirectSpec
    from neve.signals import Signal

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BatchResult:
    """What became of some requests.

    Args:
        outcomes: for each request its result; or an exception, when it cannot be stored as it is
            or as the tables are.
        duplicate_keys: attributes that lost to a later one of the same key.
        unfit_values: values that do not fit their promoted column, and are in the map only.
    """

    outcomes: tuple[RequestResult | Exception, ...]
    duplicate_keys: int = 0
    unfit_values: int = 0

    def __add__(self, other: BatchResult) -> BatchResult:
        return BatchResult(
            self.outcomes + other.outcomes,
            self.duplicate_keys + other.duplicate_keys,
            self.unfit_values + other.unfit_values,
        )


class _TableRows(PendingRows):
    """The rows of one table, and the write that takes them."""

    def __init__(self, name: str, requests: int) -> None:
        super().__init__()
        self.name = name
        self.rows_of_request = np.zeros(requests, np.int64)
        self.write: TableWrite | None = None
        self.error: NeveError | None = None

    @property
    def has_rows(self) -> npt.NDArray[np.bool_]:
        """Tell for each request whether it has rows here."""
        return self.rows_of_request > 0

    def flush(self, sink: Sink, deadline: Deadline) -> None:
        """Write the rows that wait. After a failure, rows are dropped: none are committed."""
        rows, _ = self.take()
        if self.error is not None:
            return
        try:
            if self.write is None:
                self.write = sink.begin(self.name, deadline)
            self.write.write(rows, deadline)
        except NeveError as error:
            self.error = error


class RequestBatch:
    """Writes requests of one signal. At least once: a failed one may be stored in part."""

    def __init__(
        self,
        sink: Sink,
        spec: DirectSpec,
        signal: Signal,
        requests: Sequence[IncomingRequest],
        deadline: Deadline,
    ) -> None:
        self._sink = sink
        self._spec = spec
        self._signal = signal
        self._requests = requests
        self._deadline = deadline
        # What the decoder reads at once may stay in memory until the rows are written.
        size = sum(len(request.checked.payload) for request in requests)
        self._is_long = size > limits.DECODE_GROUP_BYTES
        self._tables: dict[str, _TableRows] = {}
        self._rejections = [Rejections() for _ in requests]
        self._duplicate_keys = 0
        self._unfit_values = 0

    def write(self) -> BatchResult:
        """Decode the requests, write their rows and commit them."""
        try:
            self._write_files()
            self._require_balance()
        except UnbalancedError as error:
            self._abandon_all(error)
            return self._write_halves(error)
        except NeveError as error:
            self._abandon_all(error)
            return BatchResult((error,) * len(self._requests))
        except Exception as error:  # noqa: BLE001 - one request must not harm the others
            self._abandon_all(_given_up())
            return self._write_halves(error)
        results = self._commit()
        outcomes = tuple(self._outcome(number, results) for number in range(len(self._requests)))
        return BatchResult(outcomes, self._duplicate_keys, self._unfit_values)

    def _write_halves(self, error: Exception) -> BatchResult:
        """Write the requests of a batch that failed in two batches, to find out which is to blame.

        Nothing was committed.
        """
        if len(self._requests) == 1:
            return BatchResult((error,))
        middle = len(self._requests) // 2
        first, second = (
            RequestBatch(self._sink, self._spec, self._signal, requests, self._deadline)
            for requests in (self._requests[:middle], self._requests[middle:])
        )
        return first.write() + second.write()

    def _write_files(self) -> None:
        self._deadline.require("decoding")
        for part in decode_requests(self._signal, self._requests):
            self._deadline.require("decoding")
            self._duplicate_keys += part.duplicate_keys
            for letter in part.dead_letters:
                request = self._requests[letter.request]
                self._rejections[letter.request].add(self._signal, letter, request)
            for name, rows in part.tables.items():
                table = self._tables.setdefault(name, _TableRows(name, len(self._requests)))
                table.rows_of_request += np.bincount(
                    part.row_requests[name], minlength=len(self._requests)
                )
                self._gather(table, rows)
        logger.debug("%s: decoded %d requests", self._signal.value, len(self._requests))
        for table in self._tables.values():
            if table.bytes:
                table.flush(self._sink, self._deadline)

    def _require_balance(self) -> None:
        rows: npt.NDArray[np.int64] = sum(
            (table.rows_of_request for table in self._tables.values()),
            start=np.zeros(len(self._requests), np.int64),
        )
        books = zip(self._requests, rows.tolist(), self._rejections, strict=True)
        for request, made, rejections in books:
            require_balance(self._signal, request, made, rejections)

    def _gather(self, table: _TableRows, rows: pa.Table) -> None:
        promoted = promote(rows, self._spec.promotions)
        self._unfit_values += promoted.unfit_values
        pending = list(self._tables.values())
        for full in tables_to_write(pending, promoted.rows.nbytes, self._spec.flush_bytes):
            full.flush(self._sink, self._deadline)
        table.add(promoted.rows, copy=self._is_long)

    def _commit(self) -> dict[str, TableResult]:
        """Commit each table; return what became of it.

        A request is sent again if one of its tables fails. So a table is left out when all
        requests with rows in it have failed already: its rows would be stored twice.
        """
        has_failed = np.zeros(len(self._requests), np.bool_)
        for table in self._tables.values():
            if table.error is not None:
                has_failed |= table.has_rows
        results: dict[str, TableResult] = {}
        for name, table in self._tables.items():
            if table.error is None and (table.has_rows & ~has_failed).any():
                results[name] = self._commit_table(table)
            else:
                results[name] = self._abandon(table, table.error or _given_up())
            if not results[name].is_kept:
                has_failed |= table.has_rows
        return results

    def _commit_table(self, table: _TableRows) -> TableResult:
        if table.write is None:
            raise TypeError(table.name)
        try:
            rejected = sum(each.by_table[table.name] for each in self._rejections)
            counts = RecordCounts(int(table.rows_of_request.sum()) + rejected, rejected)
            return table.write.commit(self._deadline, counts)
        except Exception as error:  # noqa: BLE001 - the other tables of the batch are committed
            failure = failure_of(error, "direct", table.name)
            return replace(self._unwritten(table), error=failure)

    def _abandon_all(self, error: NeveError) -> None:
        for table in self._tables.values():
            self._abandon(table, error)

    def _abandon(self, table: _TableRows, error: NeveError) -> TableResult:
        if table.write is None:
            return replace(self._unwritten(table), error=error)
        return table.write.abandon(error)

    def _unwritten(self, table: _TableRows) -> TableResult:
        return TableResult(f"{self._spec.namespace}.{table.name}", 0, 0, (), committed=False)

    def _outcome(self, number: int, results: dict[str, TableResult]) -> RequestResult | Exception:
        tables = []
        for name, table in self._tables.items():
            rows = int(table.rows_of_request[number])
            error = results[name].error
            if rows and error is not None and not may_pass(error):
                return error
            if rows:
                tables.append(replace(results[name], rows=rows))
        rejections = self._rejections[number]
        warning = rejections.warning(self._requests[number])
        return RequestResult(self._signal, tuple(tables), rejections.records, warning)


def _given_up() -> UnavailableError:
    return UnavailableError(
        "not committed, since another part of the same batch was not",
        hint="send the request again",
    )
