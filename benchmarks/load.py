"""A load of OTLP requests, cheap to make: python -m benchmarks.load PORT SECONDS CONNECTIONS RATE.

In a process of its own, so that the receiver's time can be measured. Prints one JSON document.
"""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

RECORDS = 1000
SEED = 20260822
_HEAD = (
    b"POST /v1/logs HTTP/1.1\r\nHost: bench\r\nContent-Type: application/x-protobuf\r\n"
    b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
)
_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"


def log_request() -> bytes:
    """Return a request of log records as a web service writes them, some 210 bytes each."""
    chance = random.Random(SEED)
    request = ExportLogsServiceRequest()
    resource = request.resource_logs.add()
    _attribute(resource.resource, "service.name", "checkout")
    _attribute(resource.resource, "host.name", "node-17")
    scope = resource.scope_logs.add()
    scope.scope.name = "bench"
    now = 1_700_000_000_000_000_000
    for _ in range(RECORDS):
        now += chance.randrange(1_000_000)
        record = scope.log_records.add(
            time_unix_nano=now,
            observed_time_unix_nano=now + 500,
            severity_number=9,
            severity_text="INFO",
            trace_id=chance.randbytes(16),
            span_id=chance.randbytes(8),
        )
        user, took = chance.randrange(100_000), chance.randrange(1000)
        record.body.string_value = f"request {chance.getrandbits(32):x} of user {user}: {took} ms"
        _attribute(record, "http.method", "GET")
        _attribute(record, "http.route", "/api/v1/items/{id}")
        _attribute(record, "user.id", str(user))
        _attribute(record, "http.status_code", chance.choice(("200", "200", "404", "500")))
    return request.SerializeToString()


def _attribute(of, key: str, value: str) -> None:  # noqa: ANN001 - records and resources alike
    of.attributes.add(key=key).value.string_value = value


class Bodies:
    """Gzip bodies that all differ, so that none is a duplicate, at the cost of one compression."""

    def __init__(self) -> None:
        raw = log_request()
        packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        # Flushed, so that any further data can be compressed apart and follow in the same stream.
        self._packed = packer.compress(raw) + packer.flush(zlib.Z_FULL_FLUSH)
        self._crc = zlib.crc32(raw)
        self._size = len(raw)
        self._prefix = b"%d-" % os.getpid()

    def make(self, number: int) -> bytes:
        """Return the request with one more resource, whose schema address has the number."""
        address = self._prefix + b"%d" % number
        resource = b"\x0a" + bytes([len(address) + 2]) + b"\x1a" + bytes([len(address)]) + address
        packer = zlib.compressobj(1, zlib.DEFLATED, -15)
        tail = packer.compress(resource) + packer.flush()
        ending = struct.pack("<II", zlib.crc32(resource, self._crc), self._size + len(resource))
        return _GZIP_HEADER + self._packed + tail + ending


@dataclass
class Load:
    """What was sent, and how long the answers took."""

    seconds: float
    rate: float
    connections: int
    latencies: list[float] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)

    def run(self, port: int) -> dict[str, object]:
        bodies = Bodies()
        numbers = iter(range(sys.maxsize))
        began = time.monotonic()
        threads = [
            threading.Thread(target=self._connection, args=(port, bodies, numbers, began + n / 1e3))
            for n in range(self.connections)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - began
        ordered = sorted(self.latencies)
        return {
            "requests": len(ordered),
            "requests_per_second": len(ordered) / took,
            "p50_ms": ordered[len(ordered) // 2] * 1e3,
            "p99_ms": ordered[int(len(ordered) * 0.99)] * 1e3,
            "statuses": self.statuses,
        }

    def _connection(self, port: int, bodies: Bodies, numbers: Iterator[int], due: float) -> None:
        stop = due + self.seconds
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while time.monotonic() < stop:
                body = bodies.make(next(numbers))
                if self.rate:
                    due += self.connections / self.rate
                    time.sleep(max(0.0, due - time.monotonic()))
                sent = time.monotonic()
                connection.sendall(_HEAD % len(body) + body)
                answer = connection.recv(65536)
                while b"\r\n\r\n" not in answer:
                    answer += connection.recv(65536)
                self.latencies.append(time.monotonic() - sent)
                status = answer[9:12].decode()
                self.statuses[status] = self.statuses.get(status, 0) + 1


def main() -> None:
    port, seconds, connections, rate = sys.argv[1:]
    load = Load(float(seconds), float(rate), int(connections))
    print(json.dumps(load.run(int(port))))


if __name__ == "__main__":
    main()
