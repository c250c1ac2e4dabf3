"""A load of OTLP/gRPC requests: python -m benchmarks.grpc_load PORT SECONDS CONNECTIONS KIND.

In a process of its own, and cheap to make, so that the receiver's time can be measured: frames are
written by hand, headers always the same. KIND is `small` (10 records), `large` (1,000 records) or
`gzip` (1,000 records, compressed). Prints one JSON document.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections import Counter

from hpack import Encoder
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from benchmarks.load import Bodies, log_request
from neve.signals import Signal

SMALL_RECORDS = 10
FRAME_BYTES = 16_384
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
DEFAULT_WINDOW = 65_535


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream_id.to_bytes(4, "big")
    return head + payload


class Client:
    """One connection, one call after the other."""

    def __init__(self, port: int, encoding: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        encoder = Encoder()
        encoder.header_table_size = 0
        self._headers = encoder.encode(
            [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", Signal.LOGS.grpc_method),
                (":authority", "bench"),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
                ("grpc-encoding", encoding),
            ]
        )
        self._compressed = encoding != "identity"
        self._stream_id = -1
        self._received = bytearray()
        self._initial_window = self._window = self._connection_window = DEFAULT_WINDOW
        self._socket.sendall(PREFACE + frame(SETTINGS, 0, 0))

    def call(self, body: bytes) -> None:
        """Send a request, and return when it is acknowledged."""
        self._stream_id += 2
        self._window = self._initial_window
        message = bytes([self._compressed]) + len(body).to_bytes(4, "big") + body
        parts = [frame(HEADERS, END_HEADERS, self._stream_id, self._headers)]
        position = 0
        while position < len(message):
            size = min(FRAME_BYTES, self._window, self._connection_window)
            if size <= 0:
                self._socket.sendall(b"".join(parts))
                parts = []
                assert not self._read(), "answered before it was complete"
                continue
            piece = message[position : position + size]
            position += len(piece)
            self._window -= len(piece)
            self._connection_window -= len(piece)
            flags = END_STREAM if position == len(message) else 0
            parts.append(frame(DATA, flags, self._stream_id, piece))
        self._socket.sendall(b"".join(parts))
        while not self._read():
            pass

    def _read(self) -> bool:
        """Take what came; return whether the call is answered."""
        data = self._socket.recv(65_536)
        assert data, "the receiver closed the connection"
        self._received += data
        answered = False
        while len(self._received) >= 9:
            end = 9 + int.from_bytes(self._received[:3], "big")
            if len(self._received) < end:
                break
            kind, flags = self._received[3], self._received[4]
            stream_id = int.from_bytes(self._received[5:9], "big")
            payload = bytes(self._received[9:end])
            del self._received[:end]
            answered |= self._handle(kind, flags, stream_id, payload)
        return answered

    def _handle(self, kind: int, flags: int, stream_id: int, payload: bytes) -> bool:
        if kind == SETTINGS and not flags & ACK:
            for start in range(0, len(payload), 6):
                name, value = payload[start : start + 2], payload[start + 2 : start + 6]
                if name == b"\0\4":
                    window = int.from_bytes(value, "big")
                    self._window += window - self._initial_window
                    self._initial_window = window
            self._socket.sendall(frame(SETTINGS, ACK, 0))
        elif kind == PING and not flags & ACK:
            self._socket.sendall(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            increment = int.from_bytes(payload, "big")
            if stream_id:
                self._window += increment
            else:
                self._connection_window += increment
        return kind in (DATA, HEADERS) and bool(flags & END_STREAM)


class Requests:
    """Bodies that all differ, so that none is a duplicate."""

    def __init__(self, kind: str) -> None:
        request = ExportLogsServiceRequest.FromString(log_request())
        if kind == "small":
            del request.resource_logs[0].scope_logs[0].log_records[SMALL_RECORDS:]
        self._raw = request.SerializeToString()
        self._gzip = Bodies() if kind == "gzip" else None

    def make(self, number: int) -> bytes:
        if self._gzip:
            return self._gzip.make(number)
        address = b"%d-%d" % (os.getpid(), number)
        resource = b"\x1a" + bytes([len(address)]) + address
        return self._raw + b"\x0a" + bytes([len(resource)]) + resource


def main() -> None:
    port, seconds, connections, kind = sys.argv[1:]
    requests, numbers = Requests(kind), iter(range(sys.maxsize))
    latencies: list[float] = []
    counts: Counter[int] = Counter()
    began = time.monotonic()

    def load(number: int) -> None:
        client = Client(int(port), "gzip" if kind == "gzip" else "identity")
        while time.monotonic() < began + float(seconds):
            body = requests.make(next(numbers))
            sent = time.monotonic()
            client.call(body)
            latencies.append(time.monotonic() - sent)
            counts[number] += 1

    threads = [threading.Thread(target=load, args=(n,)) for n in range(int(connections))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - began
    assert len(counts) == int(connections), "a connection failed"
    ordered = sorted(latencies)
    result = {
        "requests": len(ordered),
        "requests_per_second": len(ordered) / took,
        "p50_ms": ordered[len(ordered) // 2] * 1e3,
        "p99_ms": ordered[int(len(ordered) * 0.99)] * 1e3,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
