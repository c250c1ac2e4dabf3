"""Requests are counted on the wire: the same verdict as protobuf's parser, at no cost in memory."""

import random
import tracemalloc

import pytest
from google.protobuf.message import DecodeError

from neve import limits
from neve.errors import MalformedError, TooLargeError
from neve.otlp.wire_scan import check_json_size, repair_texts, scan
from neve.signals import Signal
from tests.support.otlp_messages import fill, scrambled, varint

SEED = 20261116


def field(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def logs(*records: bytes) -> bytes:
    return field(1, field(2, b"".join(field(2, record) for record in records)))


def spans(*members: bytes) -> bytes:
    return field(1, field(2, b"".join(field(2, span) for span in members)))


def parsed(signal, body):
    try:
        return signal.request.FromString(body)
    except DecodeError:
        return None


def scanned_or_none(signal, body):
    try:
        return scan(signal, body)
    except MalformedError:
        return None


def mutated(body: bytes, rng) -> bytes:
    changed = bytearray(body)
    for _ in range(rng.choice([1, 1, 2, 5])):
        if not changed:
            break
        place = rng.randrange(len(changed))
        match rng.randrange(4):
            case 0:
                changed[place] = rng.randrange(256)
            case 1:
                del changed[place]
            case 2:
                changed.insert(place, rng.choice([0x80, 0xFF, 0, 0x0A, 0x0B, 0x0C]))
            case _:
                del changed[place:]
    return bytes(changed)


@pytest.mark.parametrize("signal", Signal)
def test_whatever_protobuf_accepts_is_accepted_and_nothing_else(signal):
    rng = random.Random(f"{SEED} {signal.value}")
    verdicts = {"both accept": 0, "both refuse": 0, "repaired": 0}
    for _ in range(1500):
        message = fill(signal.request(), rng)
        body = scrambled(message, rng) if rng.random() < 0.5 else message.SerializeToString()
        if rng.random() < 0.7:
            body = mutated(body, rng)
        expected = parsed(signal, body)
        scanned = scanned_or_none(signal, body)
        if scanned is None:
            assert expected is None, body.hex()
            verdicts["both refuse"] += 1
        elif scanned.invalid_texts:
            assert expected is None
            repaired = bytes(repair_texts(signal, body))
            assert parsed(signal, repaired) is not None, body.hex()
            assert scan(signal, repaired).invalid_texts == 0
            verdicts["repaired"] += 1
        else:
            assert expected is not None, body.hex()
            assert parsed(signal, bytes(repair_texts(signal, body))) == expected
            verdicts["both accept"] += 1
    assert min(verdicts.values()) > 10, verdicts


@pytest.mark.parametrize("signal", Signal)
def test_records_are_those_that_protobuf_finds(signal):
    rng = random.Random(f"{SEED} {signal.value}")
    for _ in range(300):
        message = fill(signal.request(), rng)
        resources, scopes, records = signal.levels
        found = [
            record
            for resource in getattr(message, resources)
            for scope in getattr(resource, scopes)
            for record in getattr(scope, records)
        ]
        if signal is Signal.METRICS:
            expected = sum(
                len(getattr(metric, metric.WhichOneof("data")).data_points)
                for metric in found
                if metric.WhichOneof("data")
            )
        else:
            expected = len(found)
        assert scan(signal, message.SerializeToString()).records == expected


ATTRIBUTE = field(1, b"k") + field(2, field(1, b"v"))
POINT_OF = {"gauge": 5, "sum": 7, "histogram": 9, "exponential_histogram": 10, "summary": 11}


def metric(kind: str, point: bytes) -> bytes:
    data = field(POINT_OF[kind], field(1, point))
    return field(1, field(2, field(2, data)))


@pytest.mark.parametrize(
    ("signal", "body"),
    [
        (Signal.LOGS, logs(field(6, ATTRIBUTE) * 70_000)),
        (Signal.TRACES, spans(field(9, ATTRIBUTE) * 70_000)),
        (Signal.TRACES, spans(field(11, b"") * 70_000)),
        (Signal.TRACES, spans(field(13, b"") * 70_000)),
        (Signal.TRACES, spans(field(11, field(3, ATTRIBUTE) * 70_000))),
        (Signal.METRICS, metric("gauge", field(5, b"") * 70_000)),
        (Signal.METRICS, metric("summary", field(6, b"") * 70_000)),
        (Signal.LOGS, logs(field(5, field(5, field(1, b"") * 70_000)))),
        (Signal.LOGS, logs(field(5, field(6, field(1, ATTRIBUTE) * 70_000)))),
        (Signal.LOGS, field(1, field(1, field(1, ATTRIBUTE) * 70_000))),
        (Signal.LOGS, field(1, field(2, field(1, field(3, ATTRIBUTE) * 70_000)))),
        (Signal.LOGS, field(1, field(1, field(3, field(3, b"") * 70_000)))),
    ],
    ids=[
        "log attributes",
        "span attributes",
        "events",
        "links",
        "event attributes",
        "exemplars",
        "quantiles",
        "array members",
        "map members",
        "resource attributes",
        "scope attributes",
        "entity keys",
    ],
)
def test_one_record_of_many_parts_is_refused(signal, body):
    with pytest.raises(TooLargeError, match=r"a record with more than 65,536") as failure:
        scan(signal, body)
    assert failure.value.field


def test_parts_of_a_record_are_its_own():
    # 60,000 parts on each of two records and on the scope that holds them: none has too many.
    record = field(6, ATTRIBUTE) * 60_000
    scope = field(2, record) * 2 + field(1, field(3, ATTRIBUTE) * 60_000)
    assert scan(Signal.LOGS, field(1, field(2, scope))).records == 2


def test_parts_of_a_request_are_counted_together():
    record = field(6, ATTRIBUTE) * 60_000
    enough = limits.MAX_PARTS // 60_000
    assert scan(Signal.LOGS, logs(*[record] * enough)).records == enough
    with pytest.raises(TooLargeError, match="more than 4,194,304 attributes"):
        scan(Signal.LOGS, logs(*[record] * (enough + 1)))


@pytest.mark.parametrize(
    ("buckets", "packed"),
    [(6, bytes(8)), (6, None)],
    ids=["packed", "unpacked"],
)
def test_bucket_counts_are_counted_packed_or_not(buckets, packed):
    count = limits.MAX_RECORD_NUMBERS + 1
    if packed:
        point = field(buckets, packed * count)
    else:
        point = (bytes([buckets << 3 | 1]) + bytes(8)) * count
    with pytest.raises(TooLargeError, match="numbers in lists"):
        scan(Signal.METRICS, metric("histogram", point))


def test_packed_varints_are_counted():
    # The buckets of an exponential histogram: a byte each on the wire, eight as a column.
    point = field(8, field(2, b"\0" * (limits.MAX_RECORD_NUMBERS + 1)))
    with pytest.raises(TooLargeError, match="numbers in lists"):
        scan(Signal.METRICS, metric("exponential_histogram", point))
    points = metric("exponential_histogram", field(8, field(2, b"\0" * 999_999))) * 17
    with pytest.raises(TooLargeError, match="more than 16,777,216 numbers"):
        scan(Signal.METRICS, points)


def test_empty_records_and_scopes_are_counted():
    with pytest.raises(TooLargeError, match="1,000,000 records"):
        scan(Signal.TRACES, field(1, field(2, b"\x12\x00" * 1_000_001)))
    with pytest.raises(TooLargeError, match="resources, scopes and metrics"):
        scan(Signal.TRACES, field(1, b"\x12\x00" * 1_000_001))
    with pytest.raises(TooLargeError, match="resources, scopes and metrics"):
        scan(Signal.METRICS, field(1, field(2, b"\x12\x00" * 1_000_001)))


def test_what_rows_repeat_is_bounded():
    # A resource of 60 kB on each of 200,000 empty records: 12 GB of rows.
    resource = field(1, field(1, field(1, b"k") + field(2, field(1, b"x" * 60_000))))

    def body(records):
        return field(1, resource + field(2, b"\x12\x00" * records))

    assert scan(Signal.LOGS, body(100_000)).records == 100_000
    with pytest.raises(TooLargeError, match="8 GiB as rows") as failure:
        scan(Signal.LOGS, body(200_000))
    assert failure.value.field == "resource_logs[0]"
    # The same of a scope, and of a metric over its points.
    scope = field(1, field(2, field(3, b"x" * 60_000) + b"\x12\x00" * 200_000))
    with pytest.raises(TooLargeError, match="8 GiB as rows"):
        scan(Signal.LOGS, scope)
    points = field(1, field(2, field(2, field(1, b"x" * 60_000) + field(5, b"\x0a\x00" * 200_000))))
    with pytest.raises(TooLargeError, match="8 GiB as rows"):
        scan(Signal.METRICS, points)
    # Records' own bytes are not repeated.
    assert scan(Signal.LOGS, logs(*[field(3, b"x" * 60_000)] * 500)).records == 500


def test_a_scan_allocates_nothing():
    body = field(1, field(2, b"\x12\x00" * 30_000_000))
    scan(Signal.TRACES, b"")
    tracemalloc.start()
    try:
        with pytest.raises(TooLargeError):
            scan(Signal.TRACES, body)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("signal", "body", "path"),
    [
        (Signal.LOGS, b"\xff", "byte 0"),
        (Signal.LOGS, logs(b"", b"", b"\x09\x01"), r"log_records\[2\]"),
        (Signal.LOGS, logs(field(6, field(2, b"\x21\x01"))), r"attributes\[0\]\.value"),
        (Signal.TRACES, spans(field(13, b"") + field(13, b"\x35")), r"spans\[0\]\.links\[1\]"),
    ],
)
def test_the_broken_field_is_named(signal, body, path):
    with pytest.raises(MalformedError, match=path) as failure:
        scan(signal, body)
    assert failure.value.field


def test_unknown_fields_with_content_are_counted():
    unknown = varint(99 << 3) + b"\x07"
    nothing = varint(99 << 3) + b"\x00" + varint(98 << 3 | 2) + b"\x00"
    scanned = scan(Signal.TRACES, spans(unknown, nothing, unknown))
    assert (scanned.unknown_fields, scanned.first_unknown) == (2, "Span.99")
    # A known number with another wire type is not known either, nor is a group.
    scanned = scan(Signal.TRACES, spans(b"\x28\x07", b"\x2b\x08\x01\x2c"))
    assert (scanned.unknown_fields, scanned.first_unknown) == (2, "Span.5")
    # Fields that only profiles use are in no table.
    scanned = scan(Signal.LOGS, logs(field(6, b"\x18\x05")))
    assert (scanned.unknown_fields, scanned.first_unknown) == (1, "KeyValue.3")


def test_unknown_fields_and_repeated_messages_count_as_parts():
    unknown = varint(99 << 3) + b"\x00"
    with pytest.raises(TooLargeError, match="65,536"):
        scan(Signal.TRACES, spans(unknown * 65_537))
    # A status, or a kind of metric, that is given again and again.
    with pytest.raises(TooLargeError, match="65,536"):
        scan(Signal.TRACES, spans(field(15, b"") * 65_538))
    kinds = field(1, field(2, field(2, b"\x2a\x00\x3a\x00" * 40_000)))
    with pytest.raises(TooLargeError, match="65,536"):
        scan(Signal.METRICS, kinds)


@pytest.mark.parametrize(
    "body",
    [
        b"\x8a\x80\x80\x80\x80\x00\x00",
        b"\x0a\x80\x80\x80\x80\x80\x00",
        b"\x0b" * 101 + b"\x0c" * 101,
        field(1, b"\x1b" * 100 + b"\x1c" * 100),
    ],
    ids=["a tag of six bytes", "a length of six bytes", "101 groups", "100 groups in a message"],
)
def test_what_only_protobufs_own_parser_refuses_is_refused(body):
    assert parsed(Signal.TRACES, body) is None
    with pytest.raises(MalformedError):
        scan(Signal.TRACES, body)


def test_groups_that_protobuf_reads_are_accepted():
    body = b"\x1b" * 90 + b"\x1c" * 90
    assert parsed(Signal.TRACES, body) is not None
    assert scan(Signal.TRACES, body).unknown_fields == 1


def test_texts_that_are_not_utf8_are_repaired():
    body = logs(
        field(3, b"caf\xe9") + field(5, field(1, b"caf\xe9")) + field(6, field(1, b"k\xff\xfe")),
        field(5, field(1, "café".encode())),
    )
    scanned = scan(Signal.LOGS, body)
    assert (scanned.records, scanned.invalid_texts) == (2, 3)
    request = Signal.LOGS.request.FromString(bytes(repair_texts(Signal.LOGS, body)))
    bad, good = request.resource_logs[0].scope_logs[0].log_records
    assert bad.severity_text == "caf\ufffd"
    assert bad.body.bytes_value == b"caf\xe9", "a body keeps its bytes"
    assert bad.attributes[0].key == "k\ufffd\ufffd"
    assert good.body.string_value == "café"


def test_a_request_too_large_to_decode_once_repaired_is_refused():
    body = logs(field(3, b"\xff" * 100))
    size = len(repair_texts(Signal.LOGS, body))
    assert size > 300
    assert len(repair_texts(Signal.LOGS, body, size)) == size
    with pytest.raises(TooLargeError):
        repair_texts(Signal.LOGS, body, size - 1)


@pytest.mark.parametrize(
    "text",
    [b"\x80", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"ab\xf0\x9f\x98"],
)
def test_what_python_calls_invalid_is_invalid(text):
    for before in range(9):
        body = logs(field(3, b"a" * before + text))
        assert scan(Signal.LOGS, body).invalid_texts == 1
        [record] = (
            Signal.LOGS.request.FromString(bytes(repair_texts(Signal.LOGS, body)))
            .resource_logs[0]
            .scope_logs[0]
            .log_records
        )
        assert record.severity_text.startswith("a" * before)
        assert record.severity_text.endswith("\ufffd")


def test_all_of_unicode_is_valid():
    rng = random.Random(SEED)
    for _ in range(200):
        text = "".join(
            chr(rng.choice([0x41, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10FFFF]))
            for _ in range(rng.randrange(20))
        )
        assert scan(Signal.LOGS, logs(field(3, text.encode()))).invalid_texts == 0


def test_json_values_are_counted_outside_of_strings():
    check_json_size(b'{"a":"' + b"{,[" * 1_000_000 + b'\\"{,[' * 1000 + b'"}')
    with pytest.raises(TooLargeError, match="JSON values"):
        check_json_size(b"[" + b"{}," * 500_000)
    with pytest.raises(TooLargeError, match="JSON values"):
        check_json_size(b'["\\\\",' + b"1," * 500_000)
