"""Tables of telemetry with batches that an audit holds, made without Spark."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from neve.lake.data_files import write_data_files
from neve.lake.staging import StagingTable
from neve.publish.batch import HELD_PREFIX
from neve.publish.publisher import Publisher
from neve.publish.ranges import Range
from tests.support.publishing import KnownStreams

HOUR = 3600
TABLES = ("otel.logs", "otel.traces")


class HeldBatches:
    """Two tables, and batches that were held in them."""

    def __init__(self, lake, monkeypatch):
        self.lake = lake
        self.monkeypatch = monkeypatch
        lake.catalog().create_namespace("otel")
        for table in TABLES:
            made = lake.catalog().create_table(table, pa.schema([("id", pa.int64())]))
            # A snapshot is never older than its table, whose time PyIceberg asks of the system.
            file = Path(made.metadata_location.removeprefix("file://"))
            document = json.loads(file.read_text())
            document["last-updated-ms"] -= 9 * HOUR * 1000
            file.write_text(json.dumps(document))

    @contextmanager
    def hours_ago(self, hours):
        now = time.time
        with self.monkeypatch.context() as patch:
            patch.setattr("time.time", lambda: now() - hours * HOUR)
            yield

    def publisher(self, table, *streams):
        staging = StagingTable(self.lake.profile, self.lake.catalog().load_table(table))
        return Publisher(staging, KnownStreams(*streams))

    def hold(self, table, batch_id, number, hours=0.0, max_held=None, audits=()):
        """Hold a batch of one row, as a worker does whose audit blocks it."""
        publisher = self.publisher(table, batch_id)
        loaded = publisher.table
        rows = pa.table({"id": pa.array([number], pa.int64())})
        with self.hours_ago(hours):
            files = write_data_files(loaded.metadata, loaded.io, rows)
            staged = publisher.stage(batch_id, files, {batch_id: Range(1, 1)})
            publisher.hold(staged, max_held, audits)

    def ids(self, table):
        return Counter(self.lake.catalog().load_table(table).scan().to_arrow()["id"].to_pylist())

    def held(self, table):
        return [batch.ref for batch in self.publisher(table).table.staged(HELD_PREFIX)]
