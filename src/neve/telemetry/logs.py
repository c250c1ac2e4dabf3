"""Log records to rows of `logs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neve.telemetry.attributes import attribute_columns
from neve.telemetry.columns import hex_column, long_column
from neve.telemetry.context import timestamps
from neve.telemetry.faults import Faults
from neve.telemetry.rows import TableRows
from neve.telemetry.schemas import LOGS
from neve.telemetry.values import decode_values

if TYPE_CHECKING:
    from neve.telemetry.context import Context


def log_rows(context: Context) -> list[TableRows]:
    """Return one row for each log record."""
    log = context.records.members
    faults = Faults(len(log))
    inherited = context.inherited()
    time = faults.time("time_unix_nano", log.field("time_unix_nano"))
    observed = faults.time("observed_time_unix_nano", log.field("observed_time_unix_nano"))
    body = decode_values(log.field("body"), context.tally)
    own = {
        "timestamp": timestamps(inherited, time, observed),
        **attribute_columns("attributes", log.field("attributes"), context.tally),
        "time_unix_nano": time,
        "observed_time_unix_nano": observed,
        "severity_number": log.field("severity_number"),
        "severity_text": log.field("severity_text"),
        "body": body.text,
        "body_kind": body.words(),
        "event_name": log.field("event_name"),
        "trace_id": hex_column(log.field("trace_id")),
        "span_id": hex_column(log.field("span_id")),
        "flags": long_column(log.field("flags")),
        "dropped_attributes_count": long_column(log.field("dropped_attributes_count")),
    }
    return [TableRows.without_faults(LOGS, own, inherited, faults, context.place)]
