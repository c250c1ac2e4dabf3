"""Spans to rows of `traces`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.compute as pc
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from neve.telemetry.attributes import attribute_columns
from neve.telemetry.columns import EnumWords, hex_column, long_column, struct_lists
from neve.telemetry.context import timestamps
from neve.telemetry.faults import Faults
from neve.telemetry.rows import TableRows
from neve.telemetry.schemas import EVENT, LINK, TRACES

if TYPE_CHECKING:
    from neve.telemetry.arrays import Lists
    from neve.telemetry.context import Context
    from neve.telemetry.equal_keys import Tally

_KINDS = EnumWords(Span.SpanKind.DESCRIPTOR, "SPAN_KIND_")
_STATUS_CODES = EnumWords(Status.StatusCode.DESCRIPTOR, "STATUS_CODE_")


def span_rows(context: Context) -> list[TableRows]:
    """Return one row for each span."""
    span = context.records.members
    status = span.field("status")
    faults = Faults(len(span))
    inherited = context.inherited()
    start = faults.time("start_time_unix_nano", span.field("start_time_unix_nano"))
    end = faults.time("end_time_unix_nano", span.field("end_time_unix_nano"))
    own = {
        "timestamp": timestamps(inherited, start),
        **attribute_columns("attributes", span.field("attributes"), context.tally),
        "trace_id": hex_column(span.field("trace_id")),
        "span_id": hex_column(span.field("span_id")),
        "parent_span_id": hex_column(span.field("parent_span_id")),
        "trace_state": span.field("trace_state"),
        "flags": long_column(span.field("flags")),
        "name": span.field("name"),
        "kind": _KINDS.column(span.field("kind")),
        "start_time_unix_nano": start,
        "end_time_unix_nano": end,
        "duration_nano": pc.subtract(end, start),
        "status_code": _STATUS_CODES.column(status.field("code")),
        "status_message": status.field("message"),
        "dropped_attributes_count": long_column(span.field("dropped_attributes_count")),
        "dropped_events_count": long_column(span.field("dropped_events_count")),
        "dropped_links_count": long_column(span.field("dropped_links_count")),
        "events": _events(span.field("events"), faults, context.tally),
        "links": _links(span.field("links"), context.tally),
    }
    return [TableRows.without_faults(TRACES, own, inherited, faults, context.place)]


def _events(lists: Lists, span_faults: Faults, tally: Tally) -> Lists:
    event = lists.values
    faults = span_faults.of_members(lists)
    columns = {
        "time_unix_nano": faults.time("events.time_unix_nano", event.field("time_unix_nano")),
        "name": event.field("name"),
        **attribute_columns("attributes", event.field("attributes"), tally),
        "dropped_attributes_count": long_column(event.field("dropped_attributes_count")),
    }
    return struct_lists(lists, columns, EVENT)


def _links(lists: Lists, tally: Tally) -> Lists:
    link = lists.values
    columns = {
        "trace_id": hex_column(link.field("trace_id")),
        "span_id": hex_column(link.field("span_id")),
        "trace_state": link.field("trace_state"),
        "flags": long_column(link.field("flags")),
        **attribute_columns("attributes", link.field("attributes"), tally),
        "dropped_attributes_count": long_column(link.field("dropped_attributes_count")),
    }
    return struct_lists(lists, columns, LINK)
