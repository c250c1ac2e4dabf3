"""OTLP log requests to send: many that differ, or one again and again.

A body is compressed once and gets a last part of its own each time it is sent, so that no two
requests are the same to the receiver and a sender needs only microseconds for one.
"""

from __future__ import annotations

import pickle
import random
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

if TYPE_CHECKING:
    from pathlib import Path

RECORDS = 1000
SEED = 20260822
# Requests of different services, and how many different ones of each.
SERVICES = 16
VARIANTS = 32

_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
_START_UNIX_NANO = 1_700_000_000_000_000_000
# What is written over in each variant: found in the bytes by what the template has there.
_TRACE_MARK, _SPAN_MARK, _WORD_MARK = b"\xf1" * 16, b"\xf2" * 8, b"\x01\x02" * 4
_HEXADECIMAL = np.frombuffer(b"0123456789abcdef", np.uint8)


@dataclass(frozen=True, slots=True)
class Body:
    """A request as a deflate stream without its end."""

    packed: bytes
    crc: int
    size: int

    def finish(self, salt: bytes) -> bytes:
        """Return it as gzip, with one more resource whose schema address is the salt."""
        resource = b"\x0a" + bytes([len(salt) + 2]) + b"\x1a" + bytes([len(salt)]) + salt
        length = len(resource)
        # A block that is stored, not compressed (RFC 1951, section 3.2.4): it costs nothing.
        block = struct.pack("<BHH", 1, length, length ^ 0xFFFF) + resource
        end = struct.pack("<II", zlib.crc32(resource, self.crc), self.size + length)
        return _GZIP_HEADER + self.packed + block + end


def compress(raw: bytes) -> Body:
    """Compress a request as most senders do, at zlib's default level."""
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    # Flushed, so that more can follow in the same stream.
    packed = packer.compress(raw) + packer.flush(zlib.Z_FULL_FLUSH)
    return Body(packed, zlib.crc32(raw), len(raw))


def different_bodies(records: int) -> list[Body]:
    """Return requests of which no two have a record in common. Deterministic."""
    chance = np.random.default_rng(SEED)
    bodies = []
    for service in range(SERVICES):
        template = np.frombuffer(_template(service, records), np.uint8)
        bodies += [compress(_variant(template, chance, records)) for _ in range(VARIANTS)]
    # Not one service after the other.
    random.Random(SEED).shuffle(bodies)
    return bodies


def repeated_body() -> list[Body]:
    """Return the one body that this benchmark sent again and again in its first version."""
    return [compress(log_request())]


def save(bodies: list[Body], path: Path) -> None:
    """Write bodies for `load`."""
    path.write_bytes(pickle.dumps(bodies))


def load(path: Path) -> list[Body]:
    """Read bodies that `save` wrote."""
    bodies: list[Body] = pickle.loads(path.read_bytes())
    return bodies


def log_request() -> bytes:
    """Return a request of log records as a web service writes them, some 210 bytes each."""
    chance = random.Random(SEED)
    request, records = _empty_request("checkout", "node-17")
    now = _START_UNIX_NANO
    for _ in range(RECORDS):
        now += chance.randrange(1_000_000)
        record = records.add(
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


def _template(service: int, count: int) -> bytes:
    """Return a request of one service, with marks where its variants differ."""
    chance = random.Random(SEED + service)
    request, records = _empty_request(f"service-{service}", f"node-{chance.randrange(100)}")
    now = _START_UNIX_NANO + service * 86_400_000_000_000
    methods = chance.choices(("GET", "POST", "PUT", "DELETE"), k=4)
    routes = [f"/api/v{service}/{chance.getrandbits(40):x}/{{id}}" for _ in range(8)]
    for _ in range(count):
        now += chance.randrange(1_000_000)
        severity, text = chance.choice(((9, "INFO"), (9, "INFO"), (13, "WARN"), (17, "ERROR")))
        record = records.add(
            time_unix_nano=now,
            observed_time_unix_nano=now + 500,
            severity_number=severity,
            severity_text=text,
            trace_id=_TRACE_MARK,
            span_id=_SPAN_MARK,
        )
        word, took = _WORD_MARK.decode(), chance.randrange(1000)
        record.body.string_value = f"request {word} of service {service} took {took} ms"
        _attribute(record, "http.method", chance.choice(methods))
        _attribute(record, "http.route", chance.choice(routes))
        _attribute(record, "user.id", str(chance.randrange(100_000)))
        _attribute(record, "http.status_code", chance.choice(("200", "200", "404", "500")))
    return request.SerializeToString()


def _variant(template: np.ndarray[Any, Any], chance: np.random.Generator, records: int) -> bytes:
    """Return a template with other ids and words in every record."""
    raw = template.copy()
    for mark, length in ((_TRACE_MARK, 16), (_SPAN_MARK, 8)):
        places = _places(template, mark, records)
        raw[places] = chance.integers(0, 256, (records, length), np.uint8)
    places = _places(template, _WORD_MARK, records)
    raw[places] = _HEXADECIMAL[chance.integers(0, 16, (records, len(_WORD_MARK)), np.uint8)]
    return raw.tobytes()


def _places(template: np.ndarray[Any, Any], mark: bytes, records: int) -> np.ndarray[Any, Any]:
    """Return the positions of a mark's bytes, a row for each record."""
    data = template.tobytes()
    starts, start = [], data.find(mark)
    while start != -1:
        starts.append(start)
        start = data.find(mark, start + len(mark))
    assert len(starts) == records, f"{len(starts)} marks in {records} records"
    return np.array(starts)[:, None] + np.arange(len(mark))


def _empty_request(service: str, host: str) -> tuple[ExportLogsServiceRequest, Any]:
    request = ExportLogsServiceRequest()
    resource = request.resource_logs.add()
    _attribute(resource.resource, "service.name", service)
    _attribute(resource.resource, "host.name", host)
    scope = resource.scope_logs.add()
    scope.scope.name = "bench"
    return request, scope.log_records


def _attribute(of: Any, key: str, value: str) -> None:
    of.attributes.add(key=key).value.string_value = value
