"""A buffer with requests in it and a worker without Spark, for trying consolidation in seconds."""

from __future__ import annotations

from collections import Counter

from neve.buffer.buffer import open_buffer
from neve.buffer.spec import BufferSpec
from neve.consolidate.consolidator import Consolidator
from neve.consolidate.spec import ConsolidateSpec
from neve.consolidate.task import run_task
from neve.lake.staging import load_staging_table
from neve.publish.batch import STAGED_PREFIX
from neve.signals import Signal
from neve.telemetry.promote import promotions_of
from tests.support.otlp_bodies import protobuf
from tests.support.requests import buffered

SIGNALS = [signal.value for signal in Signal]
NAME_COLUMN = {
    "logs": "body",
    "traces": "name",
    "metrics_gauge": "metric_name",
    "metrics_sum": "metric_name",
}


def run_inline(job):
    """Run every task of a job right here."""
    for number in range(len(job.tasks)):
        for batch in run_task(job, number):
            yield from batch.to_pylist()


class Bench:
    """A lake, a buffer, and what tests do with both."""

    def __init__(self, lake, directory, **spec):
        self.lake = lake
        self.directory = directory
        self.buffer = BufferSpec(location=str(directory / "buffer"), seal_seconds=0.01)
        promotions = promotions_of(lake.settings)
        self.spec = ConsolidateSpec(buffer=self.buffer, promotions=promotions, **spec)
        self.runner = run_inline

    def send(self, signal: Signal, *names: str, records: int = 2, received_unix_nano=None) -> None:
        """Append requests through a receiver's buffer, which is then closed: all is sealed."""
        with open_buffer(self.buffer, SIGNALS) as buffer:
            for name in names:
                request = buffered(
                    protobuf(signal, name, records), received_unix_nano=received_unix_nano
                )
                buffer.append(signal.value, request).durable.result(10)

    def append(self, signal: Signal, request) -> None:
        """Append a request as it is, through a receiver's buffer of its own."""
        with open_buffer(self.buffer, SIGNALS) as buffer:
            buffer.append(signal.value, request).durable.result(10)

    def send_gauge_and_sum(self, *names: str) -> None:
        """Append requests of one gauge and one sum each, both called by the request's name."""
        with open_buffer(self.buffer, SIGNALS) as buffer:
            for name in names:
                request = Signal.METRICS.request()
                scope = request.resource_metrics.add().scope_metrics.add()
                scope.metrics.add(name=name).gauge.data_points.add(as_double=1.0)
                scope.metrics.add(name=name).sum.data_points.add(as_double=1.0)
                body = buffered(request.SerializeToString())
                buffer.append(Signal.METRICS.value, body).durable.result(10)

    def worker(self) -> Consolidator:
        return Consolidator(self.lake, self.spec, self.runner)

    def run(self):
        return self.worker().run_once()

    def names(self, table: str) -> Counter:
        """Count the rows of a table by the name their request gave them, as readers see them."""
        rows = self.lake.catalog().load_table(f"{self.spec.namespace}.{table}").scan().to_arrow()
        return Counter(rows[NAME_COLUMN[table]].to_pylist())

    def staged(self, table: str) -> list:
        """Return what is staged in a table."""
        identifier = (self.spec.namespace, table)
        staging = load_staging_table(self.lake.profile, self.lake.catalog(), identifier)
        return staging.staged(STAGED_PREFIX)

    def waiting_segments(self) -> int:
        return sum(stream.segments for stream in self.worker().reader.streams())
