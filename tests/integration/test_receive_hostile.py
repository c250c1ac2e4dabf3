"""Senders that hold what they should not: unfinished messages, connections, TLS handshakes."""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from pathlib import Path

import grpc
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ResponseReceived, StreamEnded

from neve.buffer.disk import DiskStore
from neve.limits import RESERVED_DESCRIPTORS
from neve.signals import Signal
from tests.support.buffer_stores import payloads
from tests.support.certificates import make_certificates
from tests.support.command import neve_serve
from tests.support.otlp_bodies import protobuf
from tests.support.receivers import receiver
from tests.support.wait import until

LOGS = Signal.LOGS.grpc_method
MIB = 1 << 20
# Two sockets that listen, and the pair by which asyncio wakes itself.
LISTENING_AND_INTERNAL = 4


class Unfinished:
    """A call that sends most of a message, and then nothing."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self.h2 = H2Connection(H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.stream_id = 1
        self.status = None
        self.ended = False
        headers = {
            ":method": "POST",
            ":scheme": "http",
            ":path": LOGS,
            ":authority": "x",
            "te": "trailers",
            "content-type": "application/grpc",
        }
        self.h2.send_headers(self.stream_id, list(headers.items()))

    def send(self, announced, size):
        """Send bytes of a message, as fast as the receiver takes them."""
        self.h2.send_data(self.stream_id, b"\0" + announced.to_bytes(4, "big"))
        block = bytes(16_384)
        while size > 0 and not self.ended:
            window = self.h2.local_flow_control_window(self.stream_id)
            if window < len(block):
                self.read()
                continue
            self.h2.send_data(self.stream_id, block)
            size -= len(block)
            self.socket.sendall(self.h2.data_to_send())
        self.socket.sendall(self.h2.data_to_send())

    def read(self):
        for event in self.h2.receive_data(self.socket.recv(65_536)):
            if isinstance(event, ResponseReceived):
                self.status = int(dict(event.headers)["grpc-status"])
            elif isinstance(event, StreamEnded):
                self.ended = True


def peak_bytes(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [peak] = [line for line in lines if line.startswith("VmHWM")]
    return int(peak.split()[1]) * 1024


def export(port, body):
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        return channel.unary_unary(LOGS)(body, timeout=10)


def is_stored(send):
    try:
        send()
    except grpc.RpcError as error:
        assert error.code() is grpc.StatusCode.UNAVAILABLE  # noqa: PT017 - any other must not be
        return False
    return True


def test_unfinished_messages_neither_hold_memory_nor_starve_others(tmp_path):
    # The default limits, but for a deadline that a test can wait for.
    with receiver(tmp_path, request_timeout_seconds=8) as running:
        before = peak_bytes(running.process.pid)
        calls = [Unfinished(running.grpc) for _ in range(8)]
        for call in calls:
            call.send(64 * MIB, 60 * MIB)
        # For 20 MB there is no room beside them, until they have stalled for a second: long before
        # their deadline.
        body = protobuf(Signal.LOGS, "x" * 1000, 20_000)
        began = time.monotonic()
        until(lambda: is_stored(lambda: export(running.grpc, body)), seconds=5)
        assert running.post("/v1/logs", protobuf(Signal.LOGS, "http"))[0] == 200
        # Six were refused when the budget was full; the others end at their deadline.
        for call in calls:
            while not call.ended:
                call.read()
        assert {call.status for call in calls} <= {4, 14}
        assert time.monotonic() - began < 30
        # What they held is given back: as much again can be sent.
        large = protobuf(Signal.LOGS, "x" * 1000, 50_000)
        export(running.grpc, large)
        assert peak_bytes(running.process.pid) - before < 300 * MIB
        assert running.stop() == 0


def test_idle_connections_leave_the_buffer_its_descriptors(tmp_path):
    bodies = {protobuf(Signal.LOGS, f"beside idle connections {n}") for n in range(6)}
    with contextlib.ExitStack() as opened:
        serving = opened.enter_context(neve_serve(tmp_path, descriptors=128))
        store = DiskStore(serving.buffer)
        connection = http.client.HTTPConnection(serving.http, timeout=10)
        opened.enter_context(contextlib.closing(connection))
        channel = opened.enter_context(grpc.insecure_channel(serving.grpc))
        channel.unary_unary(LOGS)(protobuf(Signal.LOGS, "first"), timeout=10)
        assert posted(connection, protobuf(Signal.LOGS, "second")) == 200
        idle = opened.enter_context(contextlib.ExitStack())
        for number in range(150):
            address = serving.http if number % 2 else serving.grpc
            idle.enter_context(socket.create_connection(address.split(":"), timeout=10))
        until(lambda: open_sockets(serving.process.pid) == 128 - RESERVED_DESCRIPTORS)
        for number, body in enumerate(bodies):
            if number % 2:
                assert posted(connection, body) == 200
            else:
                channel.unary_unary(LOGS)(body, timeout=10)
            # Sealed, one after the other: files are opened for each.
            until(lambda of=body: of in payloads(store, "logs"))
        # Further ones are let in when others have gone.
        idle.close()
        until(lambda: can_post(serving.http, protobuf(Signal.LOGS, "afterwards")))
        assert "Too many open files" not in serving.process.log.read_text()
        assert serving.process.stop() == 0


def posted(connection, body):
    connection.request("POST", "/v1/logs", body, {"content-type": "application/x-protobuf"})
    response = connection.getresponse()
    response.read()
    return response.status


def can_post(address, body):
    with contextlib.closing(http.client.HTTPConnection(address, timeout=10)) as connection:
        try:
            return posted(connection, body) == 200
        except (ConnectionError, http.client.HTTPException):
            return False


def open_sockets(pid):
    """Count connections."""
    links = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            links.append(str(entry.readlink()))
    return sum(1 for link in links if link.startswith("socket:")) - LISTENING_AND_INTERNAL


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_tls_handshakes_that_never_come_are_bounded_too(tmp_path, protocol):
    made = make_certificates(tmp_path)
    tls = {"cert": str(made.server_cert), "key": str(made.server_key)}
    ca = grpc.ssl_channel_credentials(made.ca_cert.read_bytes())
    with contextlib.ExitStack() as opened:
        serving = opened.enter_context(
            neve_serve(tmp_path, {"receive": {"tls": tls}}, descriptors=128)
        )
        port = serving.grpc.rpartition(":")[2]
        channel = opened.enter_context(grpc.secure_channel(f"localhost:{port}", ca))
        channel.unary_unary(LOGS)(protobuf(Signal.LOGS, "first"), timeout=10)
        for _ in range(150):
            address = getattr(serving, protocol).split(":")
            opened.enter_context(socket.create_connection(address, timeout=10))
        until(lambda: open_sockets(serving.process.pid) == 128 - RESERVED_DESCRIPTORS)
        body = protobuf(Signal.LOGS, "second")
        channel.unary_unary(LOGS)(body, timeout=10)
        until(lambda: body in payloads(DiskStore(serving.buffer), "logs"))
        assert serving.process.stop() == 0
