"""The specification's matrix, over a transport in memory: no socket, no buffer."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from hypothesis import given
from hypothesis import strategies as st

from neve.errors import StorageError, UnavailableError
from neve.receive.request_handler import RequestHandler
from neve.receive.spec import ReceiveSpec, TokenSpec
from neve.signals import Signal
from tests.support.http_exchange import exchange
from tests.support.otlp_bodies import as_json, protobuf
from tests.support.sinks import ListSink

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
SIGNALS = list(Signal)


@pytest.fixture
def sink():
    return ListSink()


def send(
    sink, *chunks, path="/v1/logs", method="POST", content_type=PROTOBUF, spec=None, **headers
):
    if content_type:
        headers["content-type"] = content_type
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return exchange(RequestHandler(spec or ReceiveSpec(), sink), method, path, named, chunks)


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("encoding", ["", "identity", "gzip", "zstd", "GZIP"])
def test_protobuf_is_kept_as_it_came(sink, signal, encoding):
    body = protobuf(signal, records=50)
    sent = _compress(body, encoding.lower())
    answer = send(sink, sent, path=signal.http_path, content_encoding=encoding)
    assert answer.status == 200
    assert answer.headers["content-type"] == PROTOBUF
    assert signal.response.FromString(answer.body) == signal.response()
    assert sink.payloads == [body]
    [(name, request)] = sink.requests
    assert (name, request.records) == (signal.value, 50)
    if encoding.lower() in ("gzip", "zstd"):
        assert request.payload == sent, "the sender's compression is kept"


def _compress(body, encoding):
    if encoding == "gzip":
        return gzip.compress(body)
    return pa.compress(body, "zstd", asbytes=True) if encoding == "zstd" else body


def test_one_request_is_known_whatever_its_compression(sink):
    body = protobuf(Signal.LOGS)
    for encoding in ("identity", "gzip", "zstd"):
        send(sink, _compress(body, encoding), content_encoding=encoding)
    assert len({request.key for _, request in sink.requests}) == 1


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("encoding", ["identity", "gzip", "zstd"])
@pytest.mark.parametrize("content_type", [JSON, "application/json; charset=utf-8"])
def test_json_is_translated_once(sink, signal, encoding, content_type):
    sent = _compress(as_json(signal, records=3), encoding)
    answer = send(
        sink, sent, path=signal.http_path, content_type=content_type, content_encoding=encoding
    )
    assert answer.status == 200
    assert answer.headers["content-type"] == JSON
    assert json.loads(answer.body) == {}
    [payload] = sink.payloads
    assert len(signal.request.FromString(payload).SerializeToString()) == len(payload)
    assert sink.requests[0][1].records == 3


@pytest.mark.parametrize(("content_type", "body"), [(PROTOBUF, b""), (JSON, b"{}")])
def test_an_empty_request_succeeds(sink, content_type, body):
    assert send(sink, body, content_type=content_type).status == 200
    assert sink.requests == []


def test_a_body_that_is_not_whole_is_not_acknowledged(sink):
    body = protobuf(Signal.LOGS)
    assert send(sink, body[:-1], content_length=str(len(body))) is None
    assert sink.requests == []


def test_a_body_in_chunks(sink):
    body = protobuf(Signal.LOGS, records=10)
    assert send(sink, body[:5], b"", body[5:]).status == 200
    assert sink.payloads == [body]


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"\xff not protobuf", ""),
        (b"not gzip", "gzip"),
        (gzip.compress(b"\x0a\x05")[:-4], "gzip"),
        (b"not zstd", "zstd"),
        (b"", "gzip"),
    ],
)
def test_what_cannot_be_decoded_is_refused_for_good(sink, body, encoding):
    answer = send(sink, body, content_encoding=encoding)
    assert answer.status == 400
    assert answer.headers["content-type"] == PROTOBUF
    assert answer.failure.code == 3
    assert answer.failure.message
    assert sink.requests == []


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"resourceLogs": 7}', b"\xff"])
def test_what_is_not_otlp_json_is_refused_in_json(sink, body):
    answer = send(sink, body, content_type=JSON)
    assert answer.status == 400
    assert answer.failure.code == 3


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/logs/", "/v1/profiles", "/V1/LOGS"])
def test_other_paths_are_not_found(sink, path):
    answer = send(sink, path=path)
    assert answer.status == 404
    assert answer.failure.code == 5


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"])
def test_other_methods_are_not_allowed(sink, method):
    answer = send(sink, method=method)
    assert answer.status == 405
    assert answer.headers["allow"] == "POST"
    assert (answer.body == b"") is (method == "HEAD")


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/grpc"])
def test_other_content_types_are_unsupported(sink, content_type):
    answer = send(sink, protobuf(Signal.LOGS), content_type=content_type)
    assert answer.status == 415
    assert answer.failure.code == 12
    assert answer.peak_bytes == 0


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip"])
def test_other_encodings_are_unsupported(sink, encoding):
    assert send(sink, b"x", content_encoding=encoding).status == 415


SMALL = ReceiveSpec(max_request_bytes=1000)


def test_an_announced_body_over_the_limit_is_not_read(sink):
    answer = send(sink, b"x" * 1001, spec=SMALL, content_length="1001")
    assert answer.status == 413
    assert answer.failure.code == 8
    assert answer.peak_bytes == 0


def test_a_body_over_the_limit_is_read_no_further(sink):
    answer = send(sink, *[b"x" * 400] * 10, spec=SMALL)
    assert answer.status == 413
    assert answer.peak_bytes <= 1000


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
def test_a_body_over_the_limit_after_decompression(sink, encoding):
    bomb = _compress(bytes(10_000), encoding)
    assert send(sink, bomb, spec=SMALL, content_encoding=encoding).status == 413


def test_a_body_of_the_limit_is_taken(sink):
    body = protobuf(Signal.LOGS, "x" * 100)
    spec = ReceiveSpec(max_request_bytes=len(body))
    assert send(sink, body, spec=spec, content_length=str(len(body))).status == 200


def test_a_buffer_that_cannot_take_more_asks_to_come_back(sink):
    sink.error = UnavailableError("the buffer is full")
    for content_type, body in ((PROTOBUF, protobuf(Signal.LOGS)), (JSON, as_json(Signal.LOGS))):
        answer = send(sink, body, content_type=content_type)
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) > 0
        assert answer.failure.code == 14
        info = RetryInfo()
        assert answer.failure.details[0].Unpack(info)
        assert info.retry_delay.seconds > 0


def test_a_commit_that_failed_is_not_acknowledged(sink):
    sink.answers_at_once = False
    append = sink.append

    def failing(signal, request):
        receipt = append(signal, request)
        receipt.durable.set_exception(UnavailableError("No space left on device"))
        return receipt

    sink.append = failing
    answer = send(sink, protobuf(Signal.LOGS))
    assert answer.status == 503
    assert "No space" in answer.failure.message


def test_a_commit_that_takes_too_long_is_not_acknowledged(sink):
    sink.answers_at_once = False
    spec = ReceiveSpec(ack_timeout_seconds=0.01)
    assert send(sink, protobuf(Signal.LOGS), spec=spec).status == 503


@pytest.mark.parametrize("error", [RuntimeError("a defect"), StorageError("a disk")])
def test_nothing_is_ever_answered_with_500(sink, error, caplog):
    sink.error = error
    answer = send(sink, protobuf(Signal.LOGS))
    assert answer.status == 503
    assert "defect" not in answer.failure.message


def test_too_much_under_way_asks_to_come_back(sink):
    handler = RequestHandler(ReceiveSpec(max_in_flight_bytes=1000), sink)
    handler.budget.take(900)
    headers = {"content-type": PROTOBUF, "content-length": "200"}
    answer = exchange(handler, "POST", "/v1/logs", headers, [b"x" * 200])
    assert (answer.status, answer.peak_bytes) == (503, 900)
    assert handler.budget.used_bytes == 900
    assert handler.counters.refused_requests == {"busy": 1}


def test_a_client_that_goes_away_leaves_nothing(sink):
    handler = RequestHandler(ReceiveSpec(), sink)
    headers = {"content-type": PROTOBUF, "content-length": "1000"}
    assert exchange(handler, "POST", "/v1/logs", headers, [b"x" * 500]) is None
    assert sink.requests == []
    assert handler.budget.used_bytes == 0


TOKENS = ReceiveSpec(tokens=(TokenSpec("first-token"), TokenSpec("second-token")))


@pytest.mark.parametrize("token", ["Bearer first-token", "bearer second-token"])
def test_each_token_is_let_in(sink, token):
    body = protobuf(Signal.LOGS)
    assert send(sink, body, spec=TOKENS, authorization=token).status == 200
    assert len({bytes(r.sender) for _, r in sink.requests}) == 1


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Bearer "},
        {"authorization": "x"},
        {"authorization": "Basic first-token"},
        {"authorization": "Bearer \xe9"},
    ],
)
def test_others_are_refused_before_their_body_is_read(sink, header):
    answer = send(sink, protobuf(Signal.LOGS), spec=TOKENS, **header)
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.failure.code == 16
    assert answer.peak_bytes == 0
    assert sink.requests == []


def test_the_senders_of_two_tokens_differ(sink):
    for token in TOKENS.tokens:
        send(sink, protobuf(Signal.LOGS), spec=TOKENS, authorization=f"Bearer {token.token}")
    first, second = (request.sender for _, request in sink.requests)
    assert first != second
    assert b"first" not in first


def test_the_name_of_the_sender_is_kept(sink):
    spec = ReceiveSpec(tokens=(TokenSpec("named-token", "shop"), TokenSpec("plain-token")))
    for token in ("named-token", "plain-token"):
        send(sink, protobuf(Signal.LOGS), spec=spec, authorization=f"Bearer {token}")
    assert [request.sender_name for _, request in sink.requests] == ["shop", ""]


def test_a_sender_over_its_rate_is_asked_to_come_back_before_its_body_is_read(sink):
    spec = ReceiveSpec(tokens=(TokenSpec("named-token", "shop", max_bytes_per_second=0.1),))
    handler = RequestHandler(spec, sink)
    headers = {"content-type": PROTOBUF, "authorization": "Bearer named-token"}
    bodies = [protobuf(Signal.LOGS, name) for name in ("first", "second")]
    assert exchange(handler, "POST", "/v1/logs", headers, bodies[:1]).status == 200
    answer = exchange(handler, "POST", "/v1/logs", headers, bodies[1:])
    assert (answer.status, answer.peak_bytes) == (503, 0)
    assert answer.failure.code == 14
    # What the first has taken too much, and is paid for at 0.1 bytes a second.
    expected_seconds = 10 * (len(bodies[0]) - 0.5)
    assert expected_seconds - 5 < int(answer.headers["retry-after"]) <= expected_seconds
    info = RetryInfo()
    assert answer.failure.details[0].Unpack(info)
    assert info.retry_delay.seconds == int(answer.headers["retry-after"])
    assert handler.counters.refused_requests == {"sender_rate": 1}


def test_counters_tell_what_happened(sink):
    handler = RequestHandler(ReceiveSpec(), sink)
    headers = {"content-type": PROTOBUF}
    body = protobuf(Signal.LOGS, records=3)
    exchange(handler, "POST", "/v1/logs", headers, [body])
    sink.duplicate = True
    exchange(handler, "POST", "/v1/logs", headers, [body])
    exchange(handler, "POST", "/v1/logs", headers, [b"\xff"])
    totals = handler.counters.totals()
    unnamed = ("logs", "")
    assert totals["accepted_requests"] == {unnamed: 1}
    assert totals["accepted_records"] == {unnamed: 3}
    assert totals["accepted_bytes"] == {unnamed: len(body)}
    assert totals["duplicate_requests"] == {unnamed: 1}
    assert totals["duplicate_records"] == {unnamed: 3}
    assert totals["refused_requests"] == {("malformed",): 1}
    # The first and its duplicate were acknowledged, the malformed one was not.
    assert handler.counters.acknowledgements.read().buckets[-1] == ("+Inf", 2)


def test_health_and_readiness(sink):
    assert send(sink, method="GET", path="/healthz").status == 200
    assert send(sink, method="GET", path="/readyz").status == 200
    assert send(sink, method="HEAD", path="/readyz").body == b""
    answer = send(sink, method="POST", path="/healthz")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    sink.trouble = StorageError("No space left on device")
    assert send(sink, method="GET", path="/healthz").status == 200
    answer = send(sink, method="GET", path="/readyz")
    assert answer.status == 503
    assert json.loads(answer.body)["reason"] == "buffer: storage"
    sink.trouble = StorageError("/srv: No space left on device", hint="free space")
    answer = send(sink, method="GET", path="/readyz")
    assert json.loads(answer.body)["reason"] == "buffer: storage (free space)"
    sink.is_alive = False
    answer = send(sink, method="GET", path="/healthz")
    assert answer.status == 503
    assert json.loads(answer.body)["reason"] == "the buffer's writer is dead"


def test_cors_is_off_unless_asked_for(sink):
    preflight = {
        "origin": "https://app.example",
        "access_control_request_method": "POST",
        "access_control_request_headers": "content-type,authorization",
    }
    assert send(sink, method="OPTIONS", **preflight).status == 405
    spec = ReceiveSpec(cors_origins=("https://app.example",), tokens=(TokenSpec("t"),))
    answer = send(sink, method="OPTIONS", spec=spec, **preflight)
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    other = send(
        sink, method="OPTIONS", spec=spec, **{**preflight, "origin": "https://evil.example"}
    )
    assert "access-control-allow-origin" not in other.headers
    body = protobuf(Signal.LOGS)
    answer = send(sink, body, spec=spec, origin="https://app.example", authorization="Bearer t")
    assert answer.headers["access-control-allow-origin"] == "https://app.example"


VALID = protobuf(Signal.LOGS, records=3)


@given(
    body=st.binary(max_size=200) | st.sampled_from([VALID, gzip.compress(VALID), VALID[:-1]]),
    content_type=st.sampled_from([PROTOBUF, JSON, "text/plain"]) | st.text("abc/;= ", max_size=9),
    encoding=st.sampled_from(["", "gzip", "zstd", "identity"]) | st.text("gzip, ", max_size=9),
    path=st.sampled_from([*(s.http_path for s in Signal), "/healthz", "*", "/v1/x?y"]),
    method=st.sampled_from(["POST", "GET", "OPTIONS", "X"]),
)
def test_no_request_is_answered_with_500_or_not_at_all(body, content_type, encoding, path, method):
    headers = {"content-type": content_type, "content-encoding": encoding}
    answer = exchange(RequestHandler(SMALL, ListSink()), method, path, headers, [body])
    assert answer.status in (200, 400, 404, 405, 413, 415)


def test_metrics_of_an_unknown_kind_alone_are_stored(sink):
    # A metric whose only content is in field 13, a kind of a later version.
    body = b"\x0a\x08\x12\x06\x12\x04\x6a\x02\x0a\x00"
    answer = send(sink, body, path="/v1/metrics")
    assert answer.status == 200
    assert (
        "Metric.13" in Signal.METRICS.response.FromString(answer.body).partial_success.error_message
    )
    assert sink.payloads == [body]
