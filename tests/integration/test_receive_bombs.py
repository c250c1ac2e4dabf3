"""Requests made to fill memory or to stop others, against a real receiver with its defaults."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status

from neve.limits import DEFAULT_REQUEST_BYTES
from neve.signals import Signal
from tests.support.bombs import BOMBS, STORED, field
from tests.support.otlp_bodies import protobuf
from tests.support.otlp_messages import varint
from tests.support.receivers import receiver
from tests.support.wait import until

SENDERS = 16
# A text of 60 MB that is three times as large once it is repaired: together twice the peak.
SENDERS_OF_GROWING_TEXTS = 7
PEAK_BYTES = 600_000_000
HEALTH_SECONDS = 0.25


def peak_bytes(pid: int) -> int:
    """The most memory a process ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


class Health:
    """Asks for /healthz on one connection, again and again, and keeps the longest answer."""

    def __init__(self, port: int) -> None:
        self.slowest_seconds = 0.0
        # How much longer than asked for this process slept: what the machine adds to everything.
        self.noise_seconds = 0.0
        self.answers = 0
        self._port = port
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def _ask(self) -> None:
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        ) as connection:
            while not self._stop.is_set():
                began = time.monotonic()
                connection.request("GET", "/healthz")
                response = connection.getresponse()
                response.read()
                assert response.status == 200
                self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)
                self.answers += 1
                began = time.monotonic()
                self._stop.wait(0.005)
                self.noise_seconds = max(self.noise_seconds, time.monotonic() - began)

    def __enter__(self) -> Health:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


# The others are of the same kinds.
USUAL = {"spans", "JSON objects", "attributes of one record"}
USUAL |= {"JSON of bytes that are not UTF-8", "texts that grow when they are repaired"}


@pytest.mark.timed
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in USUAL else pytest.mark.soak) for name in BOMBS],
)
def test_a_request_costs_what_it_weighs(tmp_path, name):
    path, headers, make = BOMBS[name]
    bomb = make()
    count = SENDERS_OF_GROWING_TEXTS if "grow" in name else SENDERS
    with receiver(tmp_path) as running, ThreadPoolExecutor(count) as senders:
        assert running.post("/v1/logs", protobuf(Signal.LOGS))[0] == 200
        with Health(running.http) as health:
            answers = list(senders.map(lambda _: running.post(path, bomb, headers), range(count)))
        statuses = {status for status, _, _ in answers}
        # Refused by its counts; what is large and not yet counted may have to wait for room.
        assert statuses <= {200, 400, 413, 503}
        assert statuses & ({200} if name in STORED else {400, 413})
        assert peak_bytes(running.process.pid) < PEAK_BYTES
        assert health.answers > 3
        assert health.slowest_seconds < HEALTH_SECONDS + 2 * health.noise_seconds
        # And it goes on.
        assert running.post("/v1/logs", protobuf(Signal.LOGS, "after"))[0] == 200


@pytest.mark.timed
def test_requests_sent_together_keep_nobody_waiting(tmp_path):
    flood = b"GET /nothing HTTP/1.1\r\nHost: h\r\n\r\n" * 6000
    with receiver(tmp_path) as running, contextlib.ExitStack() as stack:
        with Health(running.http) as health:
            for _ in range(50):
                address = ("127.0.0.1", running.http)
                client = stack.enter_context(socket.create_connection(address, timeout=10))
                # The receiver closes the connection before all of it is sent.
                with contextlib.suppress(OSError):
                    client.sendall(flood)
            until(lambda: health.answers > 20)
        assert health.slowest_seconds < HEALTH_SECONDS + 2 * health.noise_seconds
        assert peak_bytes(running.process.pid) < PEAK_BYTES


def test_a_record_of_many_parts_is_answered_clearly(tmp_path):
    body = field(1, field(2, field(2, field(6, b"") * 65_537)))
    with receiver(tmp_path) as running:
        status, _, answer = running.post("/v1/logs", body)
        failure = Status.FromString(answer)
        assert (status, failure.code) == (413, 8)
        assert "65,536 attributes" in failure.message
        details = BadRequest()
        assert failure.details[0].Unpack(details)
        [violation] = details.field_violations
        assert violation.field.startswith("resource_logs[0].scope_logs[0].log_records[0]")


def test_announcing_is_not_sending(tmp_path):
    head = b"POST /v1/logs HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-protobuf\r\n"
    with receiver(tmp_path) as running, contextlib.ExitStack() as stack:
        for _ in range(4):
            address = ("127.0.0.1", running.http)
            idle = stack.enter_context(socket.create_connection(address, timeout=10))
            idle.sendall(head + b"Content-Length: %d\r\n\r\n" % DEFAULT_REQUEST_BYTES + b"x" * 300)
        assert running.post("/v1/logs", protobuf(Signal.LOGS))[0] == 200


@pytest.mark.timed
def test_senders_that_stall_make_room_for_others(tmp_path):
    # Three bodies that fill the budget, and never end.
    head = b"POST /v1/logs HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-protobuf\r\n"
    with receiver(tmp_path) as running, contextlib.ExitStack() as stack:
        for _ in range(3):
            address = ("127.0.0.1", running.http)
            stalled = stack.enter_context(socket.create_connection(address, timeout=10))
            stalled.sendall(head + b"Content-Length: 44000000\r\n\r\n" + bytes(43_000_000))
        large = protobuf(Signal.LOGS, "x" * 8_000_000)
        until(lambda: running.post("/v1/logs", large)[0] == 200, seconds=10)
        assert peak_bytes(running.process.pid) < PEAK_BYTES


def test_errors_come_in_the_content_type_of_the_request(tmp_path):
    with receiver(tmp_path) as running:
        for content_type, parse in (
            ("application/json", lambda body: json.loads(body)["message"]),
            ("application/x-protobuf", lambda body: Status.FromString(body).message),
        ):
            headers = {"content-type": content_type}
            for method, path, expected in (
                ("POST", "/v1/nothing", 404),
                ("PUT", "/v1/logs", 405),
                ("POST", "/v1/logs", 400),
            ):
                status, answered, body = running.request(method, path, b"\xff", headers)
                assert (status, answered["content-type"]) == (expected, content_type)
                assert parse(body)
            with socket.create_connection(("127.0.0.1", running.http), timeout=10) as connection:
                broken = b"Transfer-Encoding: chunked\r\n\r\nno chunk\r\n"
                connection.sendall(
                    b"POST /v1/logs HTTP/1.1\r\nHost: h\r\nContent-Type: %b\r\n%b"
                    % (content_type.encode(), broken)
                )
                answer = http.client.HTTPResponse(connection)
                answer.begin()
                assert (answer.status, answer.headers["content-type"]) == (400, content_type)
                assert "not an HTTP request" in parse(answer.read())


def test_text_that_is_not_utf8_does_not_lose_a_batch(tmp_path):
    request = Signal.LOGS.request()
    records = request.resource_logs.add().scope_logs.add().log_records
    for number in range(500):
        records.add().body.string_value = f"line {number}"
    records.add().body.string_value = "cafe"
    body = request.SerializeToString().replace(b"cafe", b"caf\xe9")
    with receiver(tmp_path) as running:
        assert running.post("/v1/logs", body)[0] == 200
        record = b'{"body":{"stringValue":"\\ud83d"}}'
        half = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[' + record + b"]}]}]}"
        assert running.post("/v1/logs", half, {"content-type": "application/json"})[0] == 200


def test_the_sender_is_told_of_what_is_not_known(tmp_path):
    unknown = field(1, field(2, field(2, varint(99 << 3) + b"\x07")))
    with receiver(tmp_path) as running:
        status, _, answer = running.post("/v1/traces", unknown)
        assert status == 200
        partial = Signal.TRACES.response.FromString(answer).partial_success
        assert partial.rejected_spans == 0
        assert "Span.99" in partial.error_message
