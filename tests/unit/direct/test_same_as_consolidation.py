"""The same requests through consolidation and through a writer: the tables are equal."""

import random
from collections import Counter
from dataclasses import replace

import pytest

import neve
from neve.buffer.buffer import open_buffer
from neve.direct.deadline import Deadline
from neve.direct.request_batch import RequestBatch
from neve.query.run import run
from neve.signals import Signal
from neve.telemetry.schemas import TABLES_OF
from tests.support.consolidation import Bench
from tests.support.otlp_messages import fill, scrambled
from tests.support.requests import buffered

# With these there are rows for every table, dead letters, duplicate keys and unfit values.
REQUESTS, SEED = 30, 4
FIRST_UNIX_NANO = 1_700_000_000_000_000_000
PROMOTE = [
    {"attribute": "a", "type": "int", "column": "promoted_a"},
    {"attribute": "b", "type": "double", "column": "promoted_b"},
    {"attribute": "1", "type": "bool", "column": "promoted_1"},
    {"attribute": "service.name", "from": "resource", "column": "promoted_service"},
    {"attribute": "näme", "from": "scope", "column": "promoted_name"},
]


def requests_of(signal):
    """Requests with odd values, some written in odd ways; no two are the same."""
    rng = random.Random(SEED)
    messages = [fill(signal.request(), rng) for _ in range(REQUESTS)]
    bodies = [
        scrambled(message, rng) if number % 3 == 0 else message.SerializeToString()
        for number, message in enumerate(messages)
    ]
    return list(dict.fromkeys(bodies))


def consolidate(lake, directory, signal, bodies):
    bench = Bench(lake, directory)
    with open_buffer(replace(bench.buffer, seal_seconds=600), [signal.value]) as buffer:
        for number, body in enumerate(bodies):
            received = FIRST_UNIX_NANO + number
            request = buffered(body, received_unix_nano=received, sender_name=sender(number))
            buffer.append(signal.value, request).durable.result(10)
    return bench.run()


def write(writer, signal, bodies):
    requests = [
        replace(
            writer.check(signal, body, sender=sender(number)),
            received_unix_nano=FIRST_UNIX_NANO + number,
        )
        for number, body in enumerate(bodies)
    ]
    deadline = Deadline.after(60)
    return RequestBatch(writer._sink, writer.spec, signal, requests, deadline).write()


def sender(number):
    return "shop" if number % 2 else ""


def as_text(rows):
    """As text NaN equals itself, and 0.0 differs from -0.0."""
    return Counter(repr(sorted(row.items())) for row in rows.to_pylist())


def files(table):
    """What the manifests say of each file, but for its name."""
    described = []
    for task in table.scan().plan_files():
        file = task.file
        bounds = sorted(file.lower_bounds.items()), sorted(file.upper_bounds.items())
        counts = sorted(file.value_counts.items()), sorted(file.null_value_counts.items())
        kind = file.record_count, file.spec_id, file.sort_order_id, file.file_size_in_bytes
        described.append((repr(file.partition), kind, bounds, counts))
    return sorted(described)


def own_properties(table):
    """Consolidation keeps how far it is with each stream in properties."""
    return {key: value for key, value in table.properties.items() if not key.startswith("neve.")}


@pytest.mark.parametrize("signal", Signal)
def test_tables_are_equal_row_by_row_and_in_what_they_are(settings, open_writer, tmp_path, signal):
    bodies = requests_of(signal)
    telemetry = {"promote": PROMOTE}
    with neve.open(settings(telemetry=telemetry)) as lake:
        report = consolidate(lake, tmp_path, signal, bodies)
        batch = write(open_writer(telemetry={**telemetry, "namespace": "direct"}), signal, bodies)
        assert sum(result.rejected for result in batch.outcomes) == report.dead_letters > 0
        assert sum(result.rows for result in batch.outcomes) == report.rows
        assert all(result.committed for result in batch.outcomes)
        assert batch.duplicate_keys > 0
        assert batch.unfit_values == report.unfit_values > 0
        for name in TABLES_OF[signal]:
            expected = lake.catalog().load_table(f"otel.{name}")
            table = lake.catalog().load_table(f"direct.{name}")
            rows = table.scan().to_arrow()
            assert len(rows) > 0
            assert as_text(rows) == as_text(expected.scan().to_arrow()), name
            assert files(table) == files(expected)
            assert table.schema() == expected.schema()
            assert table.spec() == expected.spec()
            assert table.sort_order() == expected.sort_order()
            assert table.format_version == expected.format_version
            assert own_properties(table) == own_properties(expected)
        # And DuckDB reads the same, with a reader of its own.
        assert duckdb_rows(lake, f"direct.{name}") == duckdb_rows(lake, f"otel.{name}")


def duckdb_rows(lake, table):
    answer = run(lake, f"SELECT * FROM {table}", "duckdb")
    return Counter(repr(row) for batch in answer.batches for row in batch.to_pylist())
