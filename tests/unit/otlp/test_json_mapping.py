"""OTLP/JSON: the specification's mapping, and a clean refusal of everything else."""

import json
import math

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from neve.errors import MalformedError
from neve.otlp.json_mapping import from_json
from neve.otlp.request import check
from neve.signals import Signal
from tests.support.otlp_messages import varint


def a_span(**members) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [members]}]}]}).encode()


def span_of(body: bytes):
    return (
        from_json(body, ExportTraceServiceRequest).message.resource_spans[0].scope_spans[0].spans[0]
    )


def value_of(value: str):
    body = (
        '{"resourceSpans":[{"resource":{"attributes":[{"key":"k","value":' + value + "}]}}]}"
    ).encode()
    request = from_json(body, ExportTraceServiceRequest).message
    return request.resource_spans[0].resource.attributes[0].value


def point_of(members: str):
    body = (
        '{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"histogram":{"dataPoints":['
        + members
        + "]}}]}]}]}"
    ).encode()
    request = from_json(body, ExportMetricsServiceRequest).message
    return request.resource_metrics[0].scope_metrics[0].metrics[0].histogram.data_points[0]


def test_ids_are_hex_in_either_case():
    span = span_of(a_span(traceId="5B8EFFF798038103D269B633813FC60C", spanId="eee19b7ec3c1b174"))
    assert span.trace_id.hex() == "5b8efff798038103d269b633813fc60c"
    assert span.span_id.hex() == "eee19b7ec3c1b174"


def test_ids_of_logs_links_and_exemplars_are_hex_too():
    log = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"traceId": "0A", "spanId": "0b"}]}]}]}
    record = from_json(json.dumps(log).encode(), ExportLogsServiceRequest).message
    record = record.resource_logs[0].scope_logs[0].log_records[0]
    assert (record.trace_id, record.span_id) == (b"\x0a", b"\x0b")
    link = span_of(a_span(links=[{"traceId": "0c"}], parentSpanId="0D")).links[0]
    assert link.trace_id == b"\x0c"
    exemplar = point_of('{"exemplars":[{"spanId":"0e","asInt":"-3"}]}').exemplars[0]
    assert (exemplar.span_id, exemplar.as_int) == (b"\x0e", -3)


@pytest.mark.parametrize(
    ("text", "data"),
    [("AQI=", b"\1\2"), ("AQI", b"\1\2"), ("+/-_", b"\xfb\xff\xbf"), ("", b"")],
    ids=["padded", "unpadded", "either alphabet", "empty"],
)
def test_other_bytes_are_base64(text, data):
    assert value_of(json.dumps({"bytesValue": text})).bytes_value == data


@pytest.mark.parametrize("written", ["1544712660300000001", '"1544712660300000001"'])
def test_64_bit_integers_are_numbers_or_strings(written):
    assert value_of(f'{{"intValue":{written}}}').int_value == 1544712660300000001


def test_integers_in_scientific_notation_lose_no_digit():
    assert value_of('{"intValue":1.544712660300000001E18}').int_value == 1544712660300000001
    assert value_of('{"intValue":"-2e3"}').int_value == -2000


@pytest.mark.parametrize(
    ("written", "double"),
    [
        ("5", 5.0),
        ("-0.0", -0.0),
        ("1e-400", 0.0),
        ('"2.5"', 2.5),
        ('"Infinity"', math.inf),
        ('"-Infinity"', -math.inf),
    ],
)
def test_doubles(written, double):
    value = value_of(f'{{"doubleValue":{written}}}').double_value
    assert (value, math.copysign(1, value)) == (double, math.copysign(1, double))


def test_nan_is_a_string():
    assert math.isnan(value_of('{"doubleValue":"NaN"}').double_value)


def test_enumerations_are_numbers_known_or_not_and_names_are_taken():
    assert span_of(a_span(kind=2)).kind == 2
    assert span_of(a_span(kind=77)).kind == 77
    assert span_of(a_span(kind="SPAN_KIND_CLIENT")).kind == 3


def test_unknown_keys_are_ignored_whatever_they_hold_and_counted():
    body = a_span(name="n", future={"traceId": 5, "deep": [{"spanId": "zz"}]}, empty=[])
    translated = from_json(body, ExportTraceServiceRequest)
    assert translated.message.resource_spans[0].scope_spans[0].spans[0].name == "n"
    assert (translated.unknown_keys, translated.first_unknown) == (1, "Span.future")


def test_snake_case_is_an_unknown_key():
    body = a_span(startTimeUnixNano="7", start_time_unix_nano="8")
    translated = from_json(body, ExportTraceServiceRequest)
    assert translated.message.resource_spans[0].scope_spans[0].spans[0].start_time_unix_nano == 7
    assert translated.first_unknown == "Span.start_time_unix_nano"


def test_unknown_keys_may_come_twice():
    body = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"x":1,"x":2,"name":"n"}]}]}]}'
    assert span_of(body).name == "n"


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (b'"caf\xe9"', b"caf\xe9"),
        (b'"\\ud83d\xe9\xc3\xa9"', b"\xef\xbf\xbd\xe9\xc3\xa9"),
    ],
    ids=["Latin-1", "beside half a pair"],
)
def test_text_that_is_not_unicode_keeps_its_bytes_or_gets_replacements(sent, kept):
    record = b'{"severityText":%b,"body":{"stringValue":%b}}'
    body = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[' + record + b"]}]}]}"
    translated = from_json(body % (sent, sent), ExportLogsServiceRequest)
    record = translated.message.resource_logs[0].scope_logs[0].log_records[0]
    assert translated.invalid_texts == 2
    assert record.body.bytes_value == kept
    assert "\ufffd" in record.severity_text


def test_half_of_a_surrogate_pair_has_no_bytes_and_is_replaced():
    value = value_of('{"stringValue":"half \\ud83d pair"}')
    assert value.string_value == "half \ufffd pair"


def test_text_in_lists_gets_replacements():
    body = b'{"resourceLogs":[{"resource":{"entityRefs":[{"idKeys":["a","b\xff"]}]}}]}'
    translated = from_json(body, ExportLogsServiceRequest)
    [reference] = translated.message.resource_logs[0].resource.entity_refs
    assert (list(reference.id_keys), translated.invalid_texts) == (["a", "b\ufffd"], 1)


def test_null_is_absence():
    span = span_of(a_span(name=None, attributes=None, status=None))
    assert not span.HasField("status")


def test_present_but_empty_is_kept_apart_from_absent():
    assert value_of('{"arrayValue":{}}').WhichOneof("value") == "array_value"
    assert value_of('{"stringValue":""}').WhichOneof("value") == "string_value"
    assert value_of("{}").WhichOneof("value") is None
    assert point_of('{"sum":0}').HasField("sum")
    assert not point_of("{}").HasField("sum")


def test_everything_protobuf_writes_is_read_back_alike():
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    point = metric.exponential_histogram.data_points.add(
        count=(1 << 64) - 1, sum=-0.5, scale=-3, zero_count=1, zero_threshold=1e-300, flags=1
    )
    point.positive.bucket_counts.extend([0, 1, (1 << 64) - 1])
    point.negative.offset = -7
    text = json_format.MessageToJson(request).encode()
    assert from_json(text, ExportMetricsServiceRequest).message == request


def is_taken(body: bytes, *, is_json: bool) -> bool:
    try:
        check(Signal.TRACES, body, json=is_json)
    except MalformedError:
        return False
    return True


@pytest.mark.parametrize(
    ("before", "after", "fields"),
    [
        ('{"resourceSpans":[{"resource":{"attributes":[{"value":', "}]}}]}", [2, 1, 1, 1]),
        (
            '{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[{"value":',
            "}]}]}]}]}",
            [2, 9, 2, 2, 1],
        ),
    ],
    ids=["resource", "span"],
)
def test_nesting_is_taken_exactly_as_deep_as_protobuf_reads(before, after, fields):
    taken = []
    for levels in range(40, 60):
        value = '{"arrayValue":{"values":[' * levels + "{}" + "]}}" * levels
        as_json = is_taken((before + value + after).encode(), is_json=True)
        wire = b""
        for field in [1, 5] * levels + fields:
            wire = bytes([field << 3 | 2]) + varint(len(wire)) + wire
        assert as_json == is_taken(wire, is_json=False), levels
        taken.append(as_json)
    assert any(taken)
    assert not all(taken)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b"[]",
        b'"text"',
        b"null",
        b"{",
        b"{} {}",
        b'{"resourceSpans":{}}',
        b'{"resourceSpans":[null]}',
        b'{"resourceSpans":[5]}',
        b'{"resourceSpans":[{"resource":[]}]}',
        b'{"resourceSpans":[],"resourceSpans":[]}',
        b'{"x":' + b"[" * 200_000,
        b'{"resourceSpans":' + b'[{"scopeSpans":' * 50_000,
        b'{"x":' + b"9" * 10_000 + b"}",
        b'{"x":1e99999999999999999999}',
    ],
)
def test_what_is_no_otlp_json_is_malformed(body):
    with pytest.raises(MalformedError):
        check(Signal.TRACES, body, json=True)


@pytest.mark.parametrize(
    "value",
    [
        '{"intValue":9223372036854775808}',
        '{"intValue":1.5}',
        '{"intValue":1e30}',
        '{"intValue":1e999999999}',
        '{"intValue":true}',
        '{"intValue":"1_0"}',
        '{"intValue":" 1"}',
        '{"intValue":""}',
        '{"intValue":"\u0661"}',
        '{"doubleValue":NaN}',
        '{"doubleValue":Infinity}',
        '{"doubleValue":1e400}',
        '{"doubleValue":"1e400"}',
        '{"doubleValue":"nan"}',
        '{"boolValue":1}',
        '{"boolValue":"true"}',
        '{"stringValue":5}',
        '{"bytesValue":"!!!!"}',
        '{"bytesValue":"A"}',
        '{"bytesValue":5}',
        '{"stringValue":"a","intValue":1}',
        '{"arrayValue":{"values":{}}}',
        '{"arrayValue":{"values":[1]}}',
        "[]",
    ],
)
def test_values_of_another_kind_are_malformed(value):
    with pytest.raises(MalformedError):
        value_of(value)


@pytest.mark.parametrize(
    "members",
    [
        {"traceId": "abc"},
        {"traceId": "zz"},
        {"traceId": " 0a"},
        {"traceId": "\u0661\u0661"},
        {"traceId": 5},
        {"kind": "SERVER"},
        {"kind": 1 << 31},
        {"kind": 1.5},
        {"flags": -1},
        {"flags": 1 << 32},
        {"startTimeUnixNano": -1},
        {"startTimeUnixNano": 1 << 64},
        {"attributes": {}},
        {"status": []},
        {"name": "n", "attributes": [{"key": 5}]},
    ],
)
def test_fields_that_do_not_fit_are_malformed(members):
    with pytest.raises(MalformedError):
        span_of(a_span(**members))


@pytest.mark.parametrize(
    ("members", "path"),
    [
        ({"traceId": "xyz"}, "traceId"),
        ({"links": [{}, {"flags": "no"}]}, "links[1].flags"),
        (
            {"attributes": [{"key": "k", "value": {"intValue": "x"}}]},
            "attributes[0].value.intValue",
        ),
        ({"events": [5]}, "events[0]"),
    ],
)
def test_the_error_names_the_field(members, path):
    with pytest.raises(MalformedError) as failure:
        span_of(a_span(**members))
    where = f"resourceSpans[0].scopeSpans[0].spans[0].{path}"
    assert failure.value.field == where
    assert failure.value.message.startswith(f"{where} must be ")
