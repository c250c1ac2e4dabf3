"""Rows that were written without Spark, as Spark reads them."""

import random

from neve.config import Settings
from neve.direct import Writer
from neve.signals import Signal
from tests.support.otlp_messages import fill

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
