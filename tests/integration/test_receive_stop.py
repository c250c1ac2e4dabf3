"""A receiver that is asked to stop finishes what it took, within its time."""

from __future__ import annotations

import socket
import threading
import time

import grpc

from neve.buffer.disk import DiskStore
from neve.buffer.reader import BufferReader
from neve.signals import Signal
from tests.support.buffer_stores import payloads
from tests.support.otlp_bodies import protobuf
from tests.support.receivers import raw_request, receiver
from tests.support.wait import until

SEALED_AT_ONCE = {"seal_seconds": 0.01}


def stored(location, signal=Signal.LOGS):
    return payloads(DiskStore(location), signal.value)


def test_a_graceful_stop_finishes_what_was_accepted(tmp_path):
    body = protobuf(Signal.LOGS, "in flight")
    raw = raw_request(body)
    with (
        receiver(tmp_path) as running,
        socket.create_connection(("127.0.0.1", running.http), timeout=10) as connection,
    ):
        connection.sendall(raw[:-3])
        until(lambda: running.request("GET", "/healthz")[0] == 200)
        stopping = threading.Thread(target=running.stop)
        stopping.start()
        until(lambda: _refuses(running.http))
        connection.sendall(raw[-3:])
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        stopping.join()
        assert running.process.returncode == 0
    assert stored(tmp_path) == [body]
    [stream] = BufferReader(DiskStore(tmp_path), dedup_seconds=300).streams()
    assert stream.closed


def test_a_graceful_stop_finishes_grpc_calls(tmp_path):
    body, stop_began = protobuf(Signal.LOGS, "in flight"), threading.Event()

    def message():
        stop_began.wait(20)
        yield body

    with (
        receiver(tmp_path) as running,
        grpc.insecure_channel(f"127.0.0.1:{running.grpc}") as channel,
    ):
        # Its headers are sent at once, before the next call's.
        call = channel.stream_unary(Signal.LOGS.grpc_method).future(message(), timeout=20)
        channel.unary_unary(Signal.LOGS.grpc_method)(protobuf(Signal.LOGS, "before"), timeout=10)
        stopping = threading.Thread(target=running.stop)
        stopping.start()
        until(lambda: _refuses(running.grpc))
        stop_began.set()
        assert call.result() == b""
        stopping.join()
        assert running.process.returncode == 0
    assert body in stored(tmp_path)


def _refuses(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return True
    return False


def test_a_stop_does_not_wait_for_ever(tmp_path):
    with (
        receiver(tmp_path, grace_seconds=1) as running,
        socket.create_connection(("127.0.0.1", running.http)) as connection,
    ):
        connection.sendall(b"POST /v1/logs HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx")
        until(lambda: running.request("GET", "/healthz")[0] == 200)
        began = time.monotonic()
        assert running.stop() == 0
        assert time.monotonic() - began < 4
