"""Rows that were written without Spark, as Spark reads them."""

import random

from neve.config import Settings
from neve.direct import Writer
from neve.lake import append_snapshot, manifest_lists
from neve.signals import Signal
from tests.support.appending import Appender
from tests.support.otlp_messages import fill
from tests.support.readers import by_all, read_with_all

SEED, REQUESTS = 4, 20
# Between them they have every type of column there is.
TABLES = ("traces", "metrics_sum", "metrics_exponential_histogram")


def test_spark_reads_what_pyiceberg_reads(embedded_lake):
    settings = embedded_lake.settings.model_copy(
        update={"telemetry": Settings(telemetry={"namespace": "direct"}).telemetry}
    )
    rng = random.Random(SEED)
    with Writer.open(settings) as writer:
        for signal in (Signal.TRACES, Signal.METRICS):
            bodies = [fill(signal.request(), rng).SerializeToString() for _ in range(REQUESTS)]
            requests = [writer.check(signal, body) for body in bodies]
            assert all(result.committed for result in writer.write_requests(signal, requests))
    for name in TABLES:
        table = f"direct.{name}"
        rows = embedded_lake.catalog().load_table(table).scan().to_arrow().to_pylist()
        by_spark = embedded_lake.query(f"SELECT * FROM {table}").to_pylist()
        assert len(rows) > 0
        assert sorted(map(repr, by_spark)) == sorted(map(repr, rows))


def test_all_engines_read_and_spark_extends_lists_of_copied_blocks(embedded_lake, monkeypatch):
    """A manifest list of several blocks, most of them copied from the parent's list."""
    monkeypatch.setattr(append_snapshot, "_SIZES", (8,))
    monkeypatch.setattr(manifest_lists, "_BLOCK_BYTES", 400)
    appender = Appender(embedded_lake, "copied_blocks")
    for number in range(50):
        appender.append(number)
    listed = manifest_lists.read_list(
        appender.table.io, appender.load().current_snapshot().manifest_list
    )
    assert (listed.settled_count, len(listed.manifests)) == (6, 2)
    embedded_lake.spark.sql("INSERT INTO copied_blocks.t VALUES (50)")
    appender.table.refresh()
    appender.append(51)
    rows = [{"id": number} for number in range(52)]
    assert read_with_all(embedded_lake, "copied_blocks.t") == by_all(rows)
