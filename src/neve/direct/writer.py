"""Writes telemetry without Spark: one call, and the rows are in their table.

At least once: a client that sends a request again whose answer was lost stores it twice.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from neve.direct.deadline import Deadline
from neve.direct.request_rows import decode_request
from neve.direct.results import RequestResult, TableResult
from neve.direct.spec import DirectSpec, direct_spec
from neve.direct.table_sink import TableSink
from neve.errors import UsageError
from neve.lake.profile import DEFAULT_CATALOG, profile_named
from neve.observe.commits import CommitObserver, ignore_commits
from neve.signals import Signal
from neve.telemetry.schemas import TABLES_OF

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Self

    from neve.config import Settings
    from neve.direct.sink import Sink


class Writer:
    """Writes rows and requests of telemetry. May be called by several threads."""

    def __init__(self, sink: Sink, spec: DirectSpec) -> None:
        self.spec = spec
        self._sink = sink

    @classmethod
    def open(cls, settings: Settings, *, observer: CommitObserver = ignore_commits) -> Self:
        """Connect to what a configuration names: its catalog, or with type none, its storage.

        Args:
            observer: is told what each commit cost, by the thread that made it.
        """
        spec = direct_spec(settings)
        profile = profile_named(settings, DEFAULT_CATALOG)
        return cls(TableSink(profile, spec, observer), spec)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._sink.close()

    def write_and_commit(
        self,
        signal_type: Signal | str,
        metric_type: str | None,
        batch: pa.Table,
        *,
        deadline: Deadline | None = None,
    ) -> TableResult:
        """Write rows to the table of a signal, which is made on demand, and commit them.

        Args:
            metric_type: of metrics: gauge, sum, histogram, exponential_histogram or summary.
            batch: rows with the table's columns; those it lacks are NULL.

        Returns:
            What became of the rows; see its `committed`.
        """
        table = table_of(Signal(signal_type), metric_type)
        return self._sink.write(table, batch, self._deadline(deadline))

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
        """
        until = self._deadline(deadline)
        decoded = decode_request(
            Signal(signal),
            body,
            self.spec.promotions,
            received_unix_nano=time.time_ns(),
            sender=sender,
            json=json,
        )
        results = tuple(
            self._sink.write(name, decoded.rows(name), until) for name in decoded.tables
        )
        warning = "; ".join(decoded.reasons[:3])
        return RequestResult(Signal(signal), results, decoded.rejected, warning)

    def _deadline(self, deadline: Deadline | None) -> Deadline:
        if deadline is None:
            return Deadline.after(self.spec.deadline_seconds)
        return deadline.at_most(self.spec.deadline_seconds)


def table_of(signal: Signal, metric_type: str | None) -> str:
    """Return the name of a telemetry table. Raises UsageError."""
    name = f"metrics_{metric_type}" if signal is Signal.METRICS else signal.value
    if name not in TABLES_OF[signal] or (metric_type and signal is not Signal.METRICS):
        kinds = ", ".join(each.removeprefix("metrics_") for each in TABLES_OF[Signal.METRICS])
        raise UsageError(
            f"there is no table for {signal.value} of the type {metric_type}",
            hint=f"metrics are of one of the types {kinds}; logs and traces have none",
        )
    return name
