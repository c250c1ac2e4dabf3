"""Writes telemetry without Spark: one call, and the rows are in their table.

At least once: a client that sends a request again whose answer was lost stores it twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from neve.direct.deadline import Deadline
from neve.direct.request_batch import BatchResult, RequestBatch
from neve.direct.request_rows import check_request
from neve.direct.results import RequestResult, TableResult, may_pass
from neve.direct.row_checks import checked_rows, with_promoted
from neve.direct.sink import RecordCounts
from neve.direct.spec import DirectSpec, direct_spec
from neve.direct.table_sink import TableSink
from neve.errors import NeveError, UsageError
from neve.lake.profile import DEFAULT_CATALOG, profile_named
from neve.observe.commits import CommitMeasured, CommitObserver, ignore_commits
from neve.signals import Signal
from neve.telemetry.schemas import TABLES_OF

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

    from neve.config import Settings
    from neve.direct.request_rows import IncomingRequest
    from neve.direct.sink import Sink
    from neve.observe.direct_metrics import DirectMetrics


class Writer:
    """Writes rows and requests of telemetry. May be called by several threads."""

    def __init__(self, sink: Sink, spec: DirectSpec, metrics: DirectMetrics | None = None) -> None:
        self.spec = spec
        self._sink = sink
        self._metrics = metrics

    @classmethod
    def open(cls, settings: Settings, *, observer: CommitObserver = ignore_commits) -> Self:
        """Connect to what a configuration names: its catalog, or with type none, its storage.

        Args:
            observer: is told what each commit cost, by the thread that made it.
        """
        # The first import of OpenTelemetry takes a while.
        from neve.observe.direct_metrics import open_direct_metrics

        spec = direct_spec(settings)
        profile = profile_named(settings, DEFAULT_CATALOG).within(spec.deadline_seconds)
        metrics = open_direct_metrics(settings)

        def observe(commit: CommitMeasured) -> None:
            metrics.count_commit(commit)
            observer(commit)

        if profile.has_catalog:
            return cls(TableSink(profile, spec, observe), spec, metrics)
        # Loads libraries that writers to tables do not need.
        from neve.direct.parquet_sink import ParquetSink

        return cls(ParquetSink(profile, spec), spec, metrics)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of connections, and send the last metrics."""
        self._sink.close()
        if self._metrics is not None:
            self._metrics.close()

    def write_and_commit(
        self,
        signal_type: Signal | str,
        metric_type: str | None,
        batch: pa.Table | pa.RecordBatch,
        *,
        deadline: Deadline | None = None,
    ) -> TableResult:
        """Write rows to the table of a signal, which is made on demand, and commit them.

        Args:
            metric_type: of metrics: gauge, sum, histogram, exponential_histogram or summary.
            batch: rows with the table's columns; those it lacks are NULL. Promoted columns that
                it lacks are filled from the attributes.

        Returns:
            What became of the rows; see its `committed`. An empty batch writes nothing.

        Raises:
            UsageError: there is no such table, or the rows do not fit it; nothing is written.
            NeveError: nothing is written that anybody will see.
        """
        name = table_of(signal_type, metric_type)
        rows = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        table = f"{self.spec.namespace}.{name}"
        if not len(rows):
            return TableResult(table, 0, 0, (), committed=True)
        until = self._deadline(deadline)
        with until.bounds_requests():
            return self._write_rows(name, rows, until)

    def _write_rows(self, name: str, rows: pa.Table, until: Deadline) -> TableResult:
        table = f"{self.spec.namespace}.{name}"
        try:
            write = self._sink.begin(name, until)
        except NeveError as error:
            if not may_pass(error):
                raise
            return TableResult(table, len(rows), 0, (), committed=False, error=error)
        rows = with_promoted(checked_rows(table, rows, write.schema), self.spec.promotions)
        try:
            write.write(rows, until)
        except NeveError as error:
            result = write.abandon(error)
            if not may_pass(error):
                raise
            return result
        return write.commit(until, RecordCounts(len(rows)))

    def write_request(
        self,
        signal: Signal | str,
        body: bytes,
        *,
        json: bool = False,
        sender: str = "",
        deadline: Deadline | None = None,
    ) -> RequestResult:
        """Write what an OTLP request holds, each table by one commit.

        Args:
            body: without compression.
            sender: the name of who sent it, for the column `sender`.

        Raises:
            MalformedError, TooLargeError: nothing of the request is stored.
            NeveError: it cannot be stored as it is, or as the tables are.
        """
        chosen = signal_of(signal)
        request = self.check(chosen, body, json=json, sender=sender)
        (outcome,) = self.write_requests(chosen, [request], deadline=deadline)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def check(
        self, signal: Signal, body: bytes, *, json: bool = False, sender: str = ""
    ) -> IncomingRequest:
        """Check a request for `write_requests`. Raises MalformedError, TooLargeError."""
        limit = self.spec.max_request_bytes
        return check_request(signal, body, json=json, sender=sender, max_bytes=limit)

    def write_requests(
        self,
        signal: Signal,
        requests: Sequence[IncomingRequest],
        *,
        deadline: Deadline | None = None,
    ) -> tuple[RequestResult | Exception, ...]:
        """Write requests of one signal together: each table by one commit.

        Returns:
            For each request its result; or an exception, when it cannot be stored.
        """
        until = self._deadline(deadline)
        with until.bounds_requests():
            result = RequestBatch(self._sink, self.spec, signal, requests, until).write()
        if self._metrics is not None:
            _count(self._metrics, signal, result)
        return result.outcomes

    def _deadline(self, deadline: Deadline | None) -> Deadline:
        if deadline is None:
            return Deadline.after(self.spec.deadline_seconds)
        return deadline.at_most(self.spec.deadline_seconds)


def signal_of(name: Signal | str) -> Signal:
    """Return the signal of that name. Raises UsageError."""
    try:
        return Signal(name)
    except ValueError as error:
        known = ", ".join(signal.value for signal in Signal)
        raise UsageError(f"there is no signal {name}", hint=f"it is one of {known}") from error


def table_of(signal_type: Signal | str, metric_type: str | None) -> str:
    """Return the name of a telemetry table. Raises UsageError."""
    signal = signal_of(signal_type)
    name = f"metrics_{metric_type}" if signal is Signal.METRICS else signal.value
    if name not in TABLES_OF[signal] or (metric_type and signal is not Signal.METRICS):
        kinds = ", ".join(each.removeprefix("metrics_") for each in TABLES_OF[Signal.METRICS])
        raise UsageError(
            f"there is no table for {signal.value} of the type {metric_type}",
            hint=f"metrics are of one of the types {kinds}; logs and traces have none",
        )
    return name


def _count(metrics: DirectMetrics, signal: Signal, result: BatchResult) -> None:
    written = [each for each in result.outcomes if isinstance(each, RequestResult)]
    kept = [each for each in written if each.is_kept]
    metrics.count_requests(
        signal.value,
        kept=len(kept),
        failed=len(result.outcomes) - len(kept),
        rejected=sum(each.rejected for each in kept),
        duplicate_keys=result.duplicate_keys,
        unfit_values=result.unfit_values,
    )
