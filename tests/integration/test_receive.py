"""The receiver as a process, spoken to by real clients over real sockets."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.client
import os
import socket
import ssl
from pathlib import Path

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry._logs import LogRecord
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from neve.buffer.disk import DiskStore
from neve.buffer.payload import Codec
from neve.buffer.reader import BufferReader
from neve.receive.spec import TlsSpec
from neve.signals import Signal
from tests.support.buffer_stores import payloads
from tests.support.certificates import Certificates, make_certificates
from tests.support.otlp_bodies import as_json, protobuf
from tests.support.receivers import export, raw_request, receiver
from tests.support.wait import until

SEALED_AT_ONCE = {"seal_seconds": 0.01}


@pytest.fixture(scope="module")
def location(tmp_path_factory):
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def shared(location):
    """One receiver for all tests that leave it as they found it."""
    with receiver(location, buffer=SEALED_AT_ONCE, max_request_bytes=1_000_000) as running:
        yield running


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def stored(location, signal=Signal.LOGS):
    return payloads(DiskStore(location), signal.value)


@pytest.mark.parametrize("signal", list(Signal))
def test_both_protocols_both_forms(shared, location, signal):
    http, rpc = (protobuf(signal, name, 5) for name in ("http", "grpc"))
    assert (
        shared.post(signal.http_path, gzip.compress(http), {"content-encoding": "gzip"})[0] == 200
    )
    json_headers = {"content-type": "application/json"}
    status, headers, body = shared.post(signal.http_path, as_json(signal, "json"), json_headers)
    assert (status, headers["content-type"], body) == (200, "application/json", b"{}")
    assert export(shared.grpc, rpc, signal=signal) == signal.response()
    until(lambda: {http, rpc} <= set(stored(location, signal)))


@pytest.mark.parametrize(
    ("compression", "codec"),
    [(grpc.Compression.NoCompression, Codec.ZSTD), (grpc.Compression.Gzip, Codec.GZIP)],
)
def test_grpc_messages_compressed_or_not(shared, location, compression, codec):
    body = protobuf(Signal.LOGS, f"compression {compression}", 100)
    export(shared.grpc, body, compression=compression)
    until(lambda: body in stored(location))
    # Kept as it came: unpacking is ours, under our limit.
    assert codecs(location)[hashlib.sha256(body).digest()] == codec


def codecs(location):
    reader = BufferReader(DiskStore(location), dedup_seconds=0)
    return {
        entry.content_hash: entry.codec
        for segments in reader.look("logs")[0].segments().values()
        for segment in segments
        for entry in reader.entries(segment)
    }


@pytest.mark.parametrize(
    ("body", "compression", "code"),
    [
        (b"\xff not protobuf", None, grpc.StatusCode.INVALID_ARGUMENT),
        (bytes(1_000_001), None, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (bytes(50_000_000), grpc.Compression.Gzip, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (b"\x1f\x8b not gzip", None, grpc.StatusCode.INVALID_ARGUMENT),
        (b"\x0a\x00", grpc.Compression.Deflate, grpc.StatusCode.UNIMPLEMENTED),
    ],
)
def test_grpc_refusals(shared, body, compression, code):
    with pytest.raises(grpc.RpcError) as caught:
        export(shared.grpc, body, compression=compression)
    assert caught.value.code() is code


def test_an_unknown_grpc_method(shared):
    with grpc.insecure_channel(f"127.0.0.1:{shared.grpc}") as channel:
        call = channel.unary_unary("/opentelemetry.proto.collector.profiles/Export")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"", timeout=10)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_receiver_whose_writer_dies_ends(tmp_path):
    with receiver(tmp_path, buffer={"has_defect": True}) as running:
        body = protobuf(Signal.LOGS)
        with contextlib.suppress(OSError):  # until it is gone
            while running.process.poll() is None:
                assert running.post("/v1/logs", body)[0] == 503
        assert running.process.wait(30) == 1
        assert "failed again and again" in "".join(running.errors)


def test_a_connection_is_kept_alive(shared):
    request = raw_request(protobuf(Signal.LOGS))
    with socket.create_connection(("127.0.0.1", shared.http), timeout=10) as connection:
        for _ in range(3):
            connection.sendall(request)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        # Two at once: answered in order.
        connection.sendall(request * 2)
        answers = b""
        while answers.count(b"HTTP/1.1 200") < 2:
            answers += connection.recv(65536)


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n"


@pytest.mark.parametrize("step", [1_000_000, 7])
def test_an_offered_upgrade_is_ignored_and_the_body_kept(shared, location, step):
    # As Java's HttpClient sends it. The parser alone would drop the body, and empty is a success.
    body = protobuf(Signal.LOGS, f"upgrade in steps of {step}")
    raw = raw_request(body, UPGRADE)
    with socket.create_connection(("127.0.0.1", shared.http), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(raw), step):
            connection.sendall(raw[start : start + step])
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    until(lambda: body in stored(location))


def test_an_upgrade_behind_another_request_is_never_acknowledged_without_its_body(shared, location):
    first, second = (protobuf(Signal.LOGS, f"pipelined {n}") for n in range(2))
    raw = raw_request(first) + raw_request(second, UPGRADE)
    answers = b""
    with socket.create_connection(("127.0.0.1", shared.http), timeout=10) as connection:
        connection.sendall(raw)
        try:
            while part := connection.recv(65536):
                answers += part
        except ConnectionError:
            pass
    assert answers.count(b"HTTP/1.1 200") <= 1
    assert second not in stored(location)


def test_the_sdk_over_http(shared, location):
    endpoint = f"http://127.0.0.1:{shared.http}"
    _use_sdk(
        "sdk.http",
        HttpSpans(endpoint=f"{endpoint}/v1/traces", compression=Compression.Gzip),
        HttpMetrics(endpoint=f"{endpoint}/v1/metrics"),
        HttpLogs(endpoint=f"{endpoint}/v1/logs", compression=Compression.Gzip),
    )
    for signal in Signal:
        until(lambda of=signal: any(b"sdk.http" in body for body in stored(location, of)))


def test_the_sdk_over_grpc(shared, location):
    endpoint = f"http://127.0.0.1:{shared.grpc}"
    _use_sdk(
        "sdk.grpc",
        GrpcSpans(endpoint=endpoint, compression=grpc.Compression.Gzip),
        GrpcMetrics(endpoint=endpoint),
        GrpcLogs(endpoint=endpoint),
    )
    for signal in Signal:
        until(lambda of=signal: any(b"sdk.grpc" in body for body in stored(location, of)))


def _use_sdk(name, span_exporter, metric_exporter, log_exporter):
    tracing = TracerProvider(shutdown_on_exit=False)
    tracing.add_span_processor(SimpleSpanProcessor(span_exporter))
    with tracing.get_tracer("tests").start_as_current_span(name):
        pass
    tracing.shutdown()
    reader = PeriodicExportingMetricReader(metric_exporter, export_interval_millis=60_000)
    metering = MeterProvider([reader], shutdown_on_exit=False)
    metering.get_meter("tests").create_counter(name).add(1)
    metering.shutdown()
    logging = LoggerProvider(shutdown_on_exit=False)
    logging.add_log_record_processor(SimpleLogRecordProcessor(log_exporter))
    logging.get_logger("tests").emit(LogRecord(body=name))
    logging.shutdown()


def test_a_full_buffer_asks_to_come_back_on_both_ports(tmp_path):
    with receiver(tmp_path, buffer={"max_bytes": 10}) as running:
        body = protobuf(Signal.LOGS, records=100)
        status, headers, _ = running.post("/v1/logs", body)
        assert (status, headers["retry-after"]) == (503, "2")
        with pytest.raises(grpc.RpcError) as caught:
            export(running.grpc, body)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        details = dict(caught.value.trailing_metadata())["grpc-status-details-bin"]
        info = RetryInfo()
        assert Status.FromString(details).details[0].Unpack(info)
        assert info.retry_delay.seconds == 2


def test_tokens_on_both_ports(tmp_path):
    with receiver(tmp_path, tokens=[{"token": "right"}]) as running:
        body = protobuf(Signal.LOGS)
        assert running.post("/v1/logs", body)[0] == 401
        assert running.post("/v1/logs", body, {"authorization": "Bearer right"})[0] == 200
        assert running.request("GET", "/healthz")[0] == 200
        for metadata in ((), (("authorization", "Bearer wrong"),)):
            with pytest.raises(grpc.RpcError) as caught:
                export(running.grpc, body, metadata=metadata)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        export(running.grpc, body, metadata=(("authorization", "Bearer right"),))
        running.stop()
    assert stored(tmp_path) == [body], "the second was the same request of the same sender"


def test_a_sender_over_its_rate_is_asked_to_come_back_on_both_ports(tmp_path):
    tokens = [{"token": "slow", "name": "shop", "max_bytes_per_second": 1}, {"token": "free"}]
    with receiver(tmp_path, tokens=tokens) as running:
        body = protobuf(Signal.LOGS, "x" * 1000)
        slow, free = ({"authorization": f"Bearer {token}"} for token in ("slow", "free"))
        assert running.post("/v1/logs", body, slow)[0] == 200
        status, headers, _ = running.post("/v1/logs", protobuf(Signal.LOGS, "next"), slow)
        assert status == 503
        # All bytes but those of the burst are to be paid for, one a second.
        assert len(body) - 100 < int(headers["retry-after"]) < len(body)
        with pytest.raises(grpc.RpcError) as caught:
            export(running.grpc, protobuf(Signal.LOGS, "next"), metadata=tuple(slow.items()))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        details = dict(caught.value.trailing_metadata())["grpc-status-details-bin"]
        info = RetryInfo()
        assert Status.FromString(details).details[0].Unpack(info)
        assert len(body) - 100 < info.retry_delay.seconds < len(body)
        assert running.post("/v1/logs", protobuf(Signal.LOGS, "next"), free)[0] == 200
        export(running.grpc, protobuf(Signal.LOGS, "next"), metadata=tuple(free.items()))


def test_tls_on_both_ports(tmp_path, certificates):
    tls = TlsSpec(str(certificates.server_cert), str(certificates.server_key))
    ca = certificates.ca_cert.read_bytes()
    with receiver(tmp_path, tls=tls) as running:
        body = protobuf(Signal.LOGS)
        assert _https(running.http, body, certificates) == 200
        export(running.grpc, body, credentials=grpc.ssl_channel_credentials(ca))
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            running.post("/v1/logs", body)
        assert running.stop() == 0
    assert stored(tmp_path) == [body]


def test_mutual_tls_on_both_ports(tmp_path, certificates):
    tls = TlsSpec(
        str(certificates.server_cert), str(certificates.server_key), str(certificates.ca_cert)
    )
    ca, key, cert = (
        path.read_bytes()
        for path in (certificates.ca_cert, certificates.client_key, certificates.client_cert)
    )
    with receiver(tmp_path, tls=tls) as running:
        body = protobuf(Signal.LOGS)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            _https(running.http, body, certificates)
        with pytest.raises(grpc.RpcError):
            export(running.grpc, body, credentials=grpc.ssl_channel_credentials(ca))
        assert _https(running.http, body, certificates, with_client=True) == 200
        export(running.grpc, body, credentials=grpc.ssl_channel_credentials(ca, key, cert))


def _https(port, body, certificates, *, with_client=False):
    context = ssl.create_default_context(cafile=certificates.ca_cert)
    if with_client:
        context.load_cert_chain(certificates.client_cert, certificates.client_key)
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=10)
    with contextlib.closing(connection):
        connection.request("POST", "/v1/logs", body, {"content-type": "application/x-protobuf"})
        return connection.getresponse().status


def test_a_certificate_that_cannot_be_read_is_said_in_one_line(tmp_path):
    tls = TlsSpec("nowhere.pem", "nowhere.key")
    with pytest.raises(AssertionError, match=r"receive\.tls"), receiver(tmp_path, tls=tls):
        pass


def test_slow_requests_are_cut_off(tmp_path):
    with receiver(tmp_path, request_timeout_seconds=0.5) as running:
        start = b"POST /v1/logs HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-protobuf\r\n"
        for sent in (b"", b"POST /v1/lo", start + b"Content-Length: 100\r\n\r\nabc"):
            with socket.create_connection(("127.0.0.1", running.http), timeout=10) as connection:
                connection.sendall(sent)
                assert _is_closed(connection)
        assert running.request("GET", "/readyz")[0] == 200


def _is_closed(connection):
    try:
        return connection.recv(65536) == b""
    except ConnectionError:
        return True


def test_a_header_without_an_end_is_cut_off(shared):
    with socket.create_connection(("127.0.0.1", shared.http), timeout=10) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000)
        assert connection.recv(65536).startswith(b"HTTP/1.1 400 ")
        assert _is_closed(connection)


def test_it_warns_when_anyone_may_send(tmp_path, certificates):
    files = (certificates.server_cert, certificates.server_key, certificates.ca_cert)
    with receiver(tmp_path, grpc="0.0.0.0:0", tls=TlsSpec(*map(str, files[:2]))) as running:
        until(lambda: any("without receive.tokens" in line for line in running.errors))
    # Its clients are told apart by their certificates.
    with receiver(tmp_path, grpc="0.0.0.0:0", tls=TlsSpec(*map(str, files))) as running:
        assert running.stop() == 0
        assert not any("without receive.tokens" in line for line in running.errors)
    with receiver(tmp_path, http="0.0.0.0:0") as running:
        until(lambda: any("without receive.tokens" in line for line in running.errors))
    with receiver(tmp_path, http="0.0.0.0:0", tokens=[{"token": "t"}]) as running:
        assert running.stop() == 0
        assert not any("without receive.tokens" in line for line in running.errors)


def test_a_port_in_use_is_said_in_one_line(tmp_path, shared):
    for port in ({"http": f"127.0.0.1:{shared.http}"}, {"grpc": f"127.0.0.1:{shared.grpc}"}):
        with pytest.raises(AssertionError, match="cannot listen on"), receiver(tmp_path, **port):
            pass


def test_it_listens_after_two_seconds_of_work_at_most(tmp_path):
    # Of the processor, not of the clock: the machine may be busy with other tests.
    with receiver(tmp_path) as running:
        times = Path(f"/proc/{running.process.pid}/stat").read_text().rpartition(")")[2].split()
        assert (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK") < 2
