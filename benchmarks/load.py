"""Send OTLP requests: python -m benchmarks.load PORT SECONDS CONNECTIONS RATE [BODIES].

In a process of its own, so that the receiver's time can be measured. One thread and prepared
bodies, since the receiver has to be the slower of the two. Prints one JSON document. RATE 0 sends
the next request of a connection as soon as the one before is answered; BODIES is a file that
`benchmarks.bodies` wrote, without it one body is sent again and again.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import selectors
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from benchmarks.bodies import Body, load, repeated_body

_HEAD = (
    b"POST /v1/logs HTTP/1.1\r\nHost: bench\r\nContent-Type: application/x-protobuf\r\n"
    b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
)
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_END_OF_HEADER = b"\r\n\r\n"
# What the statuses say of a connection that ended without an answer.
BROKEN = "broken"
LAST_ANSWERS_SECONDS = 30.0


class Connection:
    """Sends one request after the other; a server may answer before it has read all of one."""

    def __init__(self, port: int, selector: selectors.BaseSelector) -> None:
        self.due = 0.0
        self.is_busy = False
        self._port = port
        self._selector = selector
        self._unsent = memoryview(b"")
        self._began = 0.0
        self._answer = b""
        self._open()

    def _open(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self._port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(0)
        self._selector.register(self._socket, selectors.EVENT_READ, self)
        self._waits_to_write = False

    def send(self, request: bytes) -> None:
        """Begin a request."""
        self.is_busy = True
        self._answer = b""
        self._unsent = memoryview(request)
        self._began = time.monotonic()
        self._write()

    def proceed(self) -> tuple[str, float] | None:
        """Write and read what can be; return status and duration once the answer is there."""
        if self._unsent:
            self._write()
        try:
            received = self._socket.recv(65536)
            is_closed = not received
            self._answer += received
        except BlockingIOError:
            is_closed = False
        except OSError:
            is_closed = True
        if is_closed:
            return self._break_off()
        # An answer may come before all is sent: the rest belongs to the same request.
        status = None if self._unsent else self._status()
        return None if status is None else self._finish(status)

    def _write(self) -> None:
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            # Closed by the server; the answer, if there is one, can still be read.
            self._unsent = memoryview(b"")
        if bool(self._unsent) != self._waits_to_write:
            self._waits_to_write = bool(self._unsent)
            events = selectors.EVENT_READ | selectors.EVENT_WRITE * self._waits_to_write
            self._selector.modify(self._socket, events, self)

    def _status(self) -> str | None:
        head, end, body = self._answer.partition(_END_OF_HEADER)
        length = _LENGTH.search(head)
        whole = end and len(body) >= int(length[1] if length else 0)
        return head[9:12].decode() if whole else None

    def _finish(self, status: str) -> tuple[str, float]:
        self.is_busy = False
        return status, time.monotonic() - self._began

    def _break_off(self) -> tuple[str, float] | None:
        was_busy, status = self.is_busy, self._status()
        self.close()
        self._open()
        self._unsent = memoryview(b"")
        return self._finish(status or BROKEN) if was_busy else None

    def close(self) -> None:
        """Close it, whatever it is at."""
        self._selector.unregister(self._socket)
        self._socket.close()


def run(
    port: int, seconds: float, connections: int, rate: float, bodies: list[Body]
) -> dict[str, object]:
    """Send for some seconds, and return what came of it; only answered requests count."""
    selector = selectors.DefaultSelector()
    opened = [Connection(port, selector) for _ in range(connections)]
    make = _requests(bodies)
    statuses: Counter[str] = Counter()
    latencies: list[float] = []
    began = time.monotonic()
    stop = began + seconds
    for number, connection in enumerate(opened):
        connection.due = began + number * (connections / rate if rate else 0.0) / connections
    while (now := time.monotonic()) < stop or any(one.is_busy for one in opened):
        assert now < stop + LAST_ANSWERS_SECONDS, "requests are left without an answer"
        for connection in opened if now < stop else ():
            if not connection.is_busy and connection.due <= now:
                connection.due += connections / rate if rate else 0.0
                connection.send(make())
        idle = [one.due for one in opened if not one.is_busy] if rate and now < stop else []
        wait = max(0.0, min([*idle, stop]) - time.monotonic()) if now < stop else 1.0
        for key, _ in selector.select(wait):
            answered = key.data.proceed()
            if answered:
                statuses[answered[0]] += 1
                latencies.append(answered[1])
                if not rate and time.monotonic() < stop:
                    key.data.send(make())
    took = time.monotonic() - began
    for connection in opened:
        connection.close()
    return {**_summary(latencies, took), "statuses": dict(statuses)}


def _requests(bodies: list[Body]) -> Callable[[], bytes]:
    """Return what makes the next request; no two are the same, also between processes."""
    numbers = itertools.count()
    prefix = b"%d-%d-" % (os.getpid(), time.time_ns())
    turns = itertools.cycle(bodies)

    def make() -> bytes:
        body = next(turns).finish(prefix + b"%d" % next(numbers))
        return _HEAD % len(body) + body

    return make


def _summary(latencies: list[float], took: float) -> dict[str, object]:
    ordered = sorted(latencies)
    return {
        "requests": len(ordered),
        "requests_per_second": len(ordered) / took,
        "p50_ms": ordered[len(ordered) // 2] * 1e3,
        "p99_ms": ordered[int(len(ordered) * 0.99)] * 1e3,
    }


def main() -> None:
    port, seconds, connections, rate, *rest = sys.argv[1:]
    bodies = load(Path(rest[0])) if rest else repeated_body()
    print(json.dumps(run(int(port), float(seconds), int(connections), float(rate), bodies)))


if __name__ == "__main__":
    main()
