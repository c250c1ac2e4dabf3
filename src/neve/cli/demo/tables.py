"""From the buffer to the tables: staged, audited, published; and one batch that is held back."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from neve.cli.demo.chart import bar_chart
from neve.cli.demo.engines import Measure, read_by_all
from neve.cli.demo.receiver import running_receiver
from neve.cli.output import as_record
from neve.errors import CorruptionError
from neve.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path

    from neve.api import ConsolidationReport, OpenLake
    from neve.cli.demo.narrator import Narrator

AUDITED = "otel.logs"
TRACES = "otel.traces"
ERRORS = f"""SELECT service_name, count(*) AS spans, count_if(status_code = 'error') AS errors
FROM {TRACES} GROUP BY service_name ORDER BY service_name"""
SLOWEST = f"""SELECT name, order_id, city, round(duration_nano / 1e6, 1) AS milliseconds
FROM {TRACES} ORDER BY duration_nano DESC, order_id, name LIMIT 3"""
DURATIONS = """SELECT city, sum(`count`) AS checkouts, round(sum(`sum`) / sum(`count`), 3) AS mean,
round(max(`max`), 3) AS slowest FROM otel.metrics_histogram
WHERE metric_name = 'shop.checkout.duration' GROUP BY city ORDER BY city"""

BUCKETS = f"""SELECT int(duration_nano / 1e8) * 100 AS from_ms, count(*) AS checkouts
FROM {TRACES} WHERE name = 'checkout' GROUP BY from_ms ORDER BY from_ms"""
_BAR_COLUMNS = 50


def publish(
    lake: OpenLake, sent: Mapping[str, int], since: datetime, narrator: Narrator
) -> list[dict[str, Any]]:
    """Consolidate what was sent, and return what the tables have of it.

    Raises:
        CorruptionError: that is not what was sent.
    """
    narrator.step("neve consolidate: Spark decodes what is buffered, and writes sorted files.")
    with narrator.working(f"consolidating {sum(sent.values()):,} records into {len(sent)} tables"):
        report = lake.consolidate()
    narrator.step(
        "Each table's files are staged where no reader sees them, audited, and published in one "
        "step. Promoted attributes (city, order.id) are columns. The audits:"
    )
    narrator.show(("table", "audit", "result"), _audits(report))
    counts = " UNION ALL ".join(
        f"SELECT '{table}' AS table, count(*) AS rows FROM otel.{table} "
        f"WHERE received_at >= timestamp '{since.isoformat()}'"
        for table in sent
    )
    with narrator.working(f"counting the rows of {len(sent)} tables"):
        kept = {row["table"]: row["rows"] for row in lake.query(counts).to_pylist()}
    if kept != dict(sent):
        raise CorruptionError("the tables do not hold what was acknowledged", hint="report it")
    return [{"table": table, "sent": sent[table], "kept": kept[table]} for table in sent]


def hold(lake: OpenLake, config: Path, narrator: Narrator) -> list[dict[str, Any]]:
    """Send what an audit refuses, and return what is held back."""
    from neve.cli.demo import client

    with narrator.working(f"sending {client.NAMELESS} records that an audit refuses"):
        with running_receiver(config) as receiver:
            client.post(receiver.http, Signal.LOGS, client.nameless_request())
            receiver.stop()
        report = lake.consolidate()
    narrator.step(
        f"A script sends {client.NAMELESS} log records that do not say whose they are. "
        "The same audit:"
    )
    narrator.show(("table", "audit", "result"), _audits(report))
    narrator.step(
        "So this batch is held on a branch of its own. Readers see nothing of it, the next "
        "batches go on, and neve staged shows, publishes or discards it."
    )
    columns = ("table", "batch_id", "state", "rows")
    held = [as_record(batch) for batch in lake.staged()]
    return [{column: batch[column] for column in columns} for batch in held]


def answer(lake: OpenLake, narrator: Narrator) -> dict[str, list[dict[str, Any]]]:
    """Ask the tables, in SQL; draw one answer, return the others."""
    questions = {
        "errors by service": ERRORS,
        "slowest spans": SLOWEST,
        "checkout seconds by city": DURATIONS,
    }
    with narrator.working(f"asking {len(questions) + 1} questions in SQL"):
        rows = lake.query(BUCKETS).to_pylist()
        answers = {name: lake.query(text).to_pylist() for name, text in questions.items()}
    narrator.step("The tables answer SQL. How long the checkouts took, in milliseconds:")
    buckets = {f"{row['from_ms']} to {row['from_ms'] + 100}": row["checkouts"] for row in rows}
    narrator.draw(bar_chart(buckets, _BAR_COLUMNS, sys.stdout.encoding))
    return answers


def read(lake: OpenLake, narrator: Narrator) -> list[dict[str, Any]]:
    """Read the spans with three engines."""
    import pyarrow.compute as pc

    measures = [
        Measure("spans", "count(*)", lambda spans: spans.num_rows),
        Measure(
            "traces", "count(DISTINCT trace_id)", lambda spans: len(spans["trace_id"].unique())
        ),
        Measure(
            "nanoseconds",
            "sum(duration_nano)",
            lambda spans: pc.sum(spans["duration_nano"]).as_py(),
        ),
    ]
    with narrator.working("reading the spans with Spark, PyIceberg and DuckDB"):
        return read_by_all(lake, TRACES, measures)


def _audits(report: ConsolidationReport) -> list[dict[str, Any]]:
    return [
        {
            "table": table,
            "audit": result.name,
            "result": f"passed by all {result.total} rows"
            if result.passed
            else f"failed by {result.failing} of {result.total} rows",
        }
        for table, result in report.audits
    ]
