"""Each sentence of TABLES.md, and what cannot be stored."""

import json
import math
from datetime import datetime, timezone

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar, Metric, NumberDataPoint

from neve import limits
from neve.otlp.request import check
from neve.signals import Signal
from neve.telemetry.decode import TOO_LONG, UNREADABLE
from neve.telemetry.schemas import SCHEMAS, TABLES_OF
from tests.support.decoding import decode_whole
from tests.support.otlp_messages import varint

NANOS = 1_700_000_000_123_456_789
RECEIVED = datetime(2026, 1, 2, tzinfo=timezone.utc)
YEAR_2262 = int(datetime(2262, 1, 1, tzinfo=timezone.utc).timestamp()) * 10**9


def decoded(signal, *requests):
    payloads = [r if isinstance(r, bytes) else r.SerializeToString() for r in requests]
    return decode_whole(signal, payloads, [int(RECEIVED.timestamp()) * 10**9] * len(payloads))


def a_log(**fields):
    request = Signal.LOGS.request()
    log = request.resource_logs.add().scope_logs.add().log_records.add(**fields)
    return request, log


def a_span(**fields):
    request = Signal.TRACES.request()
    span = request.resource_spans.add().scope_spans.add().spans.add(**fields)
    return request, span


def a_point(kind, **fields):
    request = Signal.METRICS.request()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    return request, getattr(metric, kind).data_points.add(**fields)


def row(signal, request, table=None):
    (only,) = decoded(signal, request).tables[table or TABLES_OF[signal][0]].to_pylist()
    return only


def log_with(**value):
    request, log = a_log()
    any_value = log.attributes.add(key="k").value
    for name, content in value.items():
        setattr(any_value, name, content)
    return request, any_value


def attribute(request):
    stored = row(Signal.LOGS, request)
    types = stored["attribute_types"]
    return dict(stored["attributes"])["k"], dict(types)["k"] if types else None


@pytest.mark.parametrize("signal", Signal)
def test_without_requests_the_tables_are_there_and_empty(signal):
    for result in (decoded(signal), decoded(signal, b""), decoded(signal, b"", b"")):
        assert {name: t.num_rows for name, t in result.tables.items()} == dict.fromkeys(
            TABLES_OF[signal], 0
        )
        assert all(t.schema == SCHEMAS[name] for name, t in result.tables.items())


def test_timestamp_of_logs_is_time_else_observed_else_received():
    fields = {"time_unix_nano": NANOS, "observed_time_unix_nano": NANOS + 5000}
    stored = row(Signal.LOGS, a_log(**fields)[0])
    assert stored["timestamp"].microsecond == 123456
    assert stored["time_unix_nano"] == NANOS
    del fields["time_unix_nano"]
    stored = row(Signal.LOGS, a_log(**fields)[0])
    assert stored["timestamp"].microsecond == 123461
    assert stored["time_unix_nano"] is None
    stored = row(Signal.LOGS, a_log()[0])
    assert stored["timestamp"] == stored["received_at"] == RECEIVED


def test_timestamp_of_spans_is_start_and_of_points_is_time():
    stored = row(Signal.TRACES, a_span(start_time_unix_nano=NANOS)[0])
    assert stored["timestamp"].timestamp() == pytest.approx(NANOS / 1e9)
    assert row(Signal.TRACES, a_span(end_time_unix_nano=NANOS)[0])["timestamp"] == RECEIVED
    stored = row(Signal.METRICS, a_point("gauge", time_unix_nano=NANOS)[0])
    assert stored["timestamp"].timestamp() == pytest.approx(NANOS / 1e9)
    assert row(Signal.METRICS, a_point("gauge", start_time_unix_nano=1)[0])["timestamp"] == RECEIVED


def test_ids_are_lowercase_hex_and_null_when_empty():
    stored = row(Signal.TRACES, a_span(trace_id=b"\xab" * 16, span_id=b"\x01\xff")[0])
    assert (stored["trace_id"], stored["span_id"]) == ("ab" * 16, "01ff")
    assert stored["parent_span_id"] is None


ZEROS = {"trace_id": bytes(16), "span_id": bytes(8)}
NO_IDS = {"trace_id": None, "span_id": None}


def ids(stored):
    return {name: stored[name] for name in NO_IDS}


def test_ids_of_zeros_are_null():
    assert ids(row(Signal.LOGS, a_log(**ZEROS)[0])) == NO_IDS
    request, span = a_span(**ZEROS, parent_span_id=bytes(8))
    span.links.add(**ZEROS)
    stored = row(Signal.TRACES, request)
    assert ids(stored) == ids(stored["links"][0]) == NO_IDS
    assert stored["parent_span_id"] is None
    request, point = a_point("gauge")
    point.exemplars.add(**ZEROS)
    assert ids(row(Signal.METRICS, request)["exemplars"][0]) == NO_IDS


def test_an_id_of_zeros_changes_none_of_its_neighbours():
    request, span = a_span()
    sent = [b"", bytes(8), b"\x01" + bytes(7), bytes(7) + b"\x01", bytes(16), b"", b"\xff", b"\x00"]
    for span_id in sent:
        span.links.add(span_id=span_id)
    stored = [link["span_id"] for link in row(Signal.TRACES, request)["links"]]
    assert stored == [None, None, "01" + "00" * 7, "00" * 7 + "01", None, None, "ff", None]


@pytest.mark.parametrize("signal", Signal)
def test_every_row_has_the_name_of_its_sender(signal):
    makers = {Signal.LOGS: a_log, Signal.TRACES: a_span, Signal.METRICS: lambda: a_point("gauge")}
    payload = makers[signal]()[0].SerializeToString()
    result = decode_whole(signal, [payload] * 3, [1] * 3, ["shop", None, "till"])
    assert result.tables[TABLES_OF[signal][0]]["sender"].to_pylist() == ["shop", None, "till"]


def test_enumerations_are_words_and_unknown_numbers_digits():
    request, span = a_span(kind=2)
    span.status.code = 2
    stored = row(Signal.TRACES, request)
    assert (stored["kind"], stored["status_code"]) == ("server", "error")
    stored = row(Signal.TRACES, a_span(kind=77)[0])
    assert (stored["kind"], stored["status_code"]) == ("77", "unset")


@pytest.mark.parametrize(
    ("member", "content", "text", "kind"),
    [
        ("string_value", "1", "1", None),
        ("string_value", "", "", None),
        ("int_value", 1, "1", "int"),
        ("int_value", -(2**63), "-9223372036854775808", "int"),
        ("double_value", 1.0, "1", "double"),
        ("double_value", 0.1, "0.1", "double"),
        ("double_value", math.nan, "NaN", "double"),
        ("double_value", math.inf, "Infinity", "double"),
        ("double_value", -math.inf, "-Infinity", "double"),
        ("bool_value", True, "true", "bool"),
        ("bytes_value", b"\x00\xff", "AP8=", "bytes"),
        ("string_value_strindex", 4, None, None),
    ],
)
def test_attribute_values_are_text_beside_their_kind(member, content, text, kind):
    assert attribute(log_with(**{member: content})[0]) == (text, kind)


def test_arrays_and_maps_are_compact_json():
    request, value = log_with()
    members = value.array_value.values
    members.add(string_value='é"')
    members.add(int_value=1)
    members.add(double_value=1.0)
    members.add(double_value=math.nan)
    members.add(bool_value=False)
    members.add(bytes_value=b"\x00")
    members.add()
    members.add().kvlist_value.values.add(key="k").value.array_value.SetInParent()
    text, kind = attribute(request)
    assert text == '["é\\"",1,1.0,"NaN",false,"AA==",null,{"k":[]}]'
    assert kind == "array"
    json.loads(text)

    request, value = log_with()
    value.kvlist_value.values.add(key="a").value.int_value = 1
    assert attribute(request) == ('{"a":1}', "map")


def test_values_nest_as_deep_as_the_door_lets_them():
    levels = 47
    value = wrapped(b"", *[1, 5] * levels)
    request = wrapped(value, 5, 2, 2, 1)
    check(Signal.LOGS, request, json=False)
    assert row(Signal.LOGS, request)["body"] == "[" * levels + "null" + "]" * levels


def test_types_are_null_when_all_values_are_strings():
    request, log = a_log()
    log.attributes.add(key="s").value.string_value = "1"
    assert row(Signal.LOGS, request)["attribute_types"] is None
    log.attributes.add(key="i").value.int_value = 1
    assert row(Signal.LOGS, request)["attribute_types"] == [("i", "int")]


def test_of_equal_keys_the_last_is_kept_and_the_other_counted():
    request, log = a_log()
    log.attributes.add(key="k").value.int_value = 1
    log.attributes.add(key="other").value.string_value = "o"
    log.attributes.add(key="k").value.string_value = "last"
    nested = log.attributes.add(key="n").value.kvlist_value.values
    nested.add(key="x").value.int_value = 1
    nested.add(key="y").value.int_value = 0
    nested.add(key="x").value.int_value = 2
    result = decoded(Signal.LOGS, request)
    (stored,) = result.tables["logs"].to_pylist()
    assert stored["attributes"] == [("other", "o"), ("k", "last"), ("n", '{"y":0,"x":2}')]
    assert stored["attribute_types"] == [("n", "map")]
    assert result.duplicate_keys == 2


def test_body_keeps_its_kind():
    request, log = a_log()
    assert (row(Signal.LOGS, request)["body"], row(Signal.LOGS, request)["body_kind"]) == (
        None,
        None,
    )
    log.body.string_value = "text"
    stored = row(Signal.LOGS, request)
    assert (stored["body"], stored["body_kind"]) == ("text", "string")
    log.body.kvlist_value.values.add(key="a").value.int_value = 1
    stored = row(Signal.LOGS, request)
    assert (stored["body"], stored["body_kind"]) == ('{"a":1}', "map")


def test_service_columns_come_from_the_resource():
    request, _ = a_log()
    resource = request.resource_logs[0].resource
    for key in ("service.name", "service.namespace", "service.instance.id"):
        resource.attributes.add(key=key).value.string_value = key.upper()
    stored = row(Signal.LOGS, request)
    assert stored["service_name"] == "SERVICE.NAME"
    assert stored["service_namespace"] == "SERVICE.NAMESPACE"
    assert stored["service_instance_id"] == "SERVICE.INSTANCE.ID"
    assert row(Signal.LOGS, a_log()[0])["service_name"] is None


def test_integers_and_doubles_are_kept_apart():
    stored = row(Signal.METRICS, a_point("gauge", as_int=2**53 + 1)[0])
    assert (stored["value"], stored["value_int"]) == (2.0**53, 2**53 + 1)
    stored = row(Signal.METRICS, a_point("gauge", as_double=2.5)[0])
    assert (stored["value"], stored["value_int"]) == (2.5, None)
    stored = row(Signal.METRICS, a_point("gauge", flags=1)[0])
    assert (stored["value"], stored["value_int"], stored["flags"]) == (None, None, 1)


def test_optional_fields_are_null_when_unset_and_zero_when_zero():
    stored = row(Signal.METRICS, a_point("histogram")[0], "metrics_histogram")
    assert (stored["sum"], stored["min"], stored["max"], stored["count"]) == (None, None, None, 0)
    stored = row(Signal.METRICS, a_point("histogram", sum=0.0)[0], "metrics_histogram")
    assert stored["sum"] == 0.0


def test_duration_needs_both_ends_and_may_be_negative():
    both = a_span(start_time_unix_nano=NANOS, end_time_unix_nano=NANOS - 7)
    assert row(Signal.TRACES, both[0])["duration_nano"] == -7
    assert row(Signal.TRACES, a_span(start_time_unix_nano=NANOS)[0])["duration_nano"] is None


@pytest.mark.parametrize("nanos", [YEAR_2262, 2**63 - 1, 2**63, 2**64 - 1])
def test_a_time_after_2261_sets_its_record_aside_and_keeps_the_others(nanos):
    request, _ = a_span(name="before")
    spans = request.resource_spans[0].scope_spans[0].spans
    spans.add(name="bad", start_time_unix_nano=nanos)
    spans.add(name="after", start_time_unix_nano=YEAR_2262 - 1)
    result = decoded(Signal.TRACES, b"", request)
    assert result.tables["traces"]["name"].to_pylist() == ["before", "after"]
    (letter,) = result.dead_letters
    assert (letter.request, letter.path) == (1, "resource_spans[0].scope_spans[0].spans[1]")
    assert letter.reason == "start_time_unix_nano is after the year 2261"


def test_a_time_inside_an_event_or_exemplar_counts():
    request, span = a_span()
    span.events.add()
    span.events.add(time_unix_nano=2**63)
    (letter,) = decoded(Signal.TRACES, request).dead_letters
    assert letter.reason == "events.time_unix_nano is after the year 2261"
    request, point = a_point("sum")
    point.exemplars.add(time_unix_nano=2**63)
    (letter,) = decoded(Signal.METRICS, request).dead_letters
    assert letter.path == "resource_metrics[0].scope_metrics[0].metrics[0].sum.data_points[0]"


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("histogram", "count"),
        ("histogram", "bucket_counts"),
        ("exponential_histogram", "count"),
        ("exponential_histogram", "zero_count"),
        ("exponential_histogram", "positive.bucket_counts"),
        ("exponential_histogram", "negative.bucket_counts"),
        ("summary", "count"),
    ],
)
def test_unsigned_values_beyond_a_long_set_their_record_aside(kind, field):
    for value, letters in ((2**63 - 1, 0), (2**63, 1)):
        request, point = a_point(kind)
        *outer, name = field.split(".")
        holder = getattr(point, outer[0]) if outer else point
        if name == "bucket_counts":
            holder.bucket_counts.extend([1, value])
        else:
            setattr(holder, name, value)
        result = decoded(Signal.METRICS, request)
        assert [letter.reason for letter in result.dead_letters] == [
            f"{field} does not fit a long"
        ] * letters
        assert result.tables[f"metrics_{kind}"].num_rows == 1 - letters


def wrapped(wire, *fields):
    """A message inside messages: under these fields, from the inside."""
    for field in fields:
        wire = varint(field << 3 | 2) + varint(len(wire)) + wire
    return wire


def test_of_two_members_of_a_oneof_the_last_on_the_wire_counts():
    gauge, total = Metric(name="m"), Metric()
    gauge.gauge.data_points.add(as_int=1)
    total.sum.data_points.add(as_int=2)
    both = gauge.SerializeToString() + total.SerializeToString()
    tables = decoded(Signal.METRICS, wrapped(both, 2, 2, 1)).tables
    assert tables["metrics_gauge"].num_rows == 0
    assert tables["metrics_sum"]["value_int"].to_pylist() == [2]

    for last, kept in (({"as_int": 1}, (1.0, 1)), ({"as_double": 2.5}, (2.5, None))):
        first = {"as_double": 7.0} if "as_int" in last else {"as_int": 7}
        point = NumberDataPoint(**first).SerializeToString()
        point += NumberDataPoint(**last).SerializeToString()
        stored = row(Signal.METRICS, wrapped(point, 1, 5, 2, 2, 1))
        assert (stored["value"], stored["value_int"]) == kept

    exemplar = Exemplar(as_int=7).SerializeToString() + Exemplar(as_double=2.5).SerializeToString()
    (stored,) = row(Signal.METRICS, wrapped(exemplar, 5, 1, 5, 2, 2, 1))["exemplars"]
    assert (stored["value"], stored["value_int"]) == (2.5, None)

    value = (
        AnyValue(int_value=7).SerializeToString() + AnyValue(string_value="s").SerializeToString()
    )
    stored = row(Signal.LOGS, wrapped(value, 5, 2, 2, 1))
    assert (stored["body"], stored["body_kind"]) == ("s", "string")


def test_an_array_in_two_parts_is_one_array():
    part = AnyValue()
    part.array_value.values.add(int_value=1)
    twice = part.SerializeToString() * 2
    assert row(Signal.LOGS, wrapped(twice, 5, 2, 2, 1))["body"] == "[1,1]"


@pytest.mark.parametrize(
    "damage",
    [b"\xff\xff", b"\x0a\x05abc", b"\x0a" + b"\xff" * 9 + b"\x01"],
    ids=["garbage", "cut", "length beyond memory"],
)
def test_an_unreadable_request_is_one_dead_letter(damage):
    request, _ = a_span(name="kept")
    result = decoded(Signal.TRACES, request, damage, request)
    assert result.tables["traces"]["name"].to_pylist() == ["kept", "kept"]
    (letter,) = result.dead_letters
    assert (letter.request, letter.path, letter.reason) == (1, "", UNREADABLE)


def test_a_request_too_long_for_arrow_is_set_aside_alone(monkeypatch):
    monkeypatch.setattr(limits, "DECODE_GROUP_BYTES", 500)
    monkeypatch.setattr(limits, "LARGEST_REQUEST_BYTES", 1000)
    long, _ = a_log(event_name="x" * 2000)
    request, _ = a_log(event_name="kept")
    result = decoded(Signal.LOGS, request, long, request)
    assert result.tables["logs"]["event_name"].to_pylist() == ["kept"] * 2
    assert [(one.request, one.path, one.reason) for one in result.dead_letters] == [
        (1, "", TOO_LONG)
    ]


def test_json_goes_through_the_same_decoder():
    document = {
        "resourceSpans": [
            {
                "resource": {
                    "attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]
                },
                "scopeSpans": [
                    {
                        "scope": {"name": "lib", "version": "1"},
                        "spans": [
                            {
                                "traceId": "5B8EFFF798038103D269B633813FC60C",
                                "name": "GET /",
                                "startTimeUnixNano": "1544712660000000000",
                                "endTimeUnixNano": 1544712661000000000,
                                "kind": 2,
                            }
                        ],
                    }
                ],
            }
        ]
    }
    payload = check(Signal.TRACES, json.dumps(document).encode(), json=True).payload
    stored = row(Signal.TRACES, payload)
    assert stored["trace_id"] == "5b8efff798038103d269b633813fc60c"
    assert stored["service_name"] == "shop"
    assert stored["duration_nano"] == 10**9
    assert stored["kind"] == "server"
