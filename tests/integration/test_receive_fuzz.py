"""Any bytes on both ports: no crash, no hang, no answer that makes a client drop or repeat wrongly.

Sixty examples each in `make test`, the same ones every time; thousands, new ones, in `make soak`.
"""

from __future__ import annotations

import gzip
import socket

import grpc
import pyarrow as pa
import pytest
from google.protobuf import json_format
from google.rpc.status_pb2 import Status
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.signals import Signal
from tests.support.otlp_bodies import as_json, protobuf
from tests.support.receivers import receiver

FEW, MANY = 60, 5_000
EXAMPLES = [FEW, pytest.param(MANY, marks=pytest.mark.soak)]
SIGNALS = st.sampled_from(list(Signal))


def fuzzing(examples):
    return settings(max_examples=examples, derandomize=examples == FEW, deadline=None)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with receiver(tmp_path_factory.mktemp("fuzz"), max_request_bytes=1_000_000) as running:
        yield running
        assert running.request("GET", "/readyz")[0] == 200
        assert running.stop() == 0


@st.composite
def bodies(draw, whole):
    """Draw random bytes, or a whole request with a piece of it replaced, doubled or cut off."""
    if draw(st.booleans()):
        return draw(st.binary(max_size=300))
    body = whole(draw(SIGNALS), draw(st.text(max_size=10)), draw(st.integers(0, 5)))
    start, end = sorted(draw(st.tuples(*[st.integers(0, len(body))] * 2)))
    piece = draw(st.binary(max_size=8) | st.just(body[start:end] * 2))
    return body[:start] + piece + (body[end:] if draw(st.booleans()) else b"")


RAW = st.binary(max_size=300) | st.lists(
    st.sampled_from(
        [
            b"POST /v1/logs HTTP/1.1\r\n",
            b"Host: h\r\n",
            b"Content-Length: 5\r\n",
            b"Content-Length: -5\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Content-Type: application/x-protobuf\r\n",
            b"Content-Encoding: gzip\r\n",
            b"Expect: 100-continue\r\n",
            b"Connection: upgrade\r\nUpgrade: h2c\r\n",
            b"\r\n",
            b"5\r\nhello\r\n0\r\n\r\n",
            b"\x00\xff",
            b"hello",
        ]
    ),
    max_size=10,
).map(b"".join)


@pytest.mark.parametrize("examples", EXAMPLES)
def test_any_bytes_on_the_http_port(running, examples):
    @fuzzing(examples)
    @given(RAW)
    def check(raw):
        with socket.create_connection(("127.0.0.1", running.http), timeout=10) as connection:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            try:
                while part := connection.recv(65536):
                    answer += part
            except ConnectionError:
                pass
        assert b"HTTP/1.1 5" not in answer

    check()


ENCODE = {
    "": bytes,
    "identity": bytes,
    "gzip": gzip.compress,
    "zstd": lambda body: pa.Codec("zstd").compress(body, asbytes=True),
    "br": bytes,
}
FORMS = {"application/x-protobuf": protobuf, "application/json": as_json, "text/plain": as_json}


@st.composite
def requests(draw):
    """Draw an HTTP request of which any part may be wrong."""
    form = draw(st.sampled_from(list(FORMS)))
    encoding = draw(st.sampled_from(list(ENCODE)))
    body = draw(bodies(FORMS[form]))
    if draw(st.booleans()):
        body = ENCODE[encoding](body)
    path = draw(SIGNALS.map(lambda signal: signal.http_path) | st.just("/v1/profiles"))
    method = draw(st.sampled_from(["POST"] * 8 + ["GET", "PUT"]))
    return method, path, body, {"content-type": form, "content-encoding": encoding}


@pytest.mark.parametrize("examples", EXAMPLES)
def test_any_http_request(running, examples):
    @fuzzing(examples)
    @given(requests())
    def check(request):
        status, headers, body = running.request(*request)
        # Not 503: what is malformed must not be sent again.
        assert status in (200, 400, 404, 405, 413, 415)
        if status != 200 and headers["content-type"] == "application/json":
            json_format.Parse(body, Status())
        elif status != 200:
            Status.FromString(body)

    check()


@pytest.mark.parametrize("examples", EXAMPLES)
def test_any_bytes_on_the_grpc_port(running, examples):
    with grpc.insecure_channel(f"127.0.0.1:{running.grpc}") as channel:

        @fuzzing(examples)
        @given(bodies(protobuf), SIGNALS, st.binary(max_size=20))
        def check(raw, signal, metadata):
            call = channel.unary_unary(signal.grpc_method)
            try:
                call(raw, timeout=10, metadata=(("authorization-bin", metadata),))
            except grpc.RpcError as error:
                # Neither UNAVAILABLE nor UNKNOWN: what is malformed must not be sent again.
                assert error.code() is grpc.StatusCode.INVALID_ARGUMENT  # noqa: PT017
            with socket.create_connection(("127.0.0.1", running.grpc), timeout=10) as connection:
                connection.sendall(raw)

        check()
