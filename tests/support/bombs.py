"""Requests made to fill memory: small as they are sent, and large as they are read."""

from __future__ import annotations

import gzip
import zlib

from neve.limits import DEFAULT_REQUEST_BYTES
from tests.support.otlp_messages import varint

PROTOBUF = {"content-type": "application/x-protobuf", "content-encoding": "gzip"}
JSON = {"content-type": "application/json", "content-encoding": "gzip"}


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def squeezed(head: bytes, repeated: bytes, times: int, tail: bytes = b"") -> bytes:
    """Gzip of many equal pieces, made without holding them all."""
    squeeze = zlib.compressobj(6, wbits=31)
    block = repeated * 10_000
    parts = [squeeze.compress(head)]
    parts += [squeeze.compress(block) for _ in range(times // 10_000)]
    return b"".join(parts) + squeeze.compress(tail) + squeeze.flush()


def empty_spans(size: int) -> bytes:
    """A request of `size` bytes, two for each of its spans."""
    spans = (size - 32) // 2 // 10_000 * 10_000
    scope = varint(2 << 3 | 2) + varint(2 * spans)
    resource = varint(1 << 3 | 2) + varint(2 * spans + len(scope))
    return squeezed(resource + scope, b"\x12\x00", spans)


JSON_BODY = b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"'
JSON_BODY_END = b'"}}]}]}]}'
# What may be stored, and is: large, but no bomb.
STORED = frozenset({"JSON of one text", "JSON of bytes that are not UTF-8"})
STORED |= {"JSON of characters and one bad byte", "texts that grow when they are repaired"}

BOMBS = {
    "spans": ("/v1/traces", PROTOBUF, lambda: empty_spans(DEFAULT_REQUEST_BYTES)),
    "attributes of one record": (
        "/v1/logs",
        PROTOBUF,
        lambda: gzip.compress(field(1, field(2, field(2, field(6, b"") * 5_000_000)))),
    ),
    "exemplars of one point": (
        "/v1/metrics",
        PROTOBUF,
        lambda: gzip.compress(
            field(1, field(2, field(2, field(5, field(1, field(5, b"") * 5_000_000)))))
        ),
    ),
    "JSON objects": (
        "/v1/traces",
        JSON,
        lambda: squeezed(
            b'{"resourceSpans":[{"scopeSpans":[{"spans":[', b"{},", 2_790_000, b"{}]}]}]}"
        ),
    ),
    "JSON of one text": (
        "/v1/logs",
        JSON,
        lambda: squeezed(b'{"x":"', b"\\u0000\\n", 2_000_000, b'"}'),
    ),
    "JSON of bytes that are not UTF-8": (
        "/v1/logs",
        JSON,
        lambda: squeezed(JSON_BODY, b"\xff", 16_000_000, JSON_BODY_END),
    ),
    "JSON of characters and one bad byte": (
        "/v1/logs",
        JSON,
        lambda: squeezed(JSON_BODY, "é".encode(), 8_000_000, b"\xff" + JSON_BODY_END),
    ),
    "texts that grow when they are repaired": (
        "/v1/logs",
        PROTOBUF,
        lambda: gzip.compress(field(1, field(2, field(2, field(3, b"\xff" * 60_000_000))))),
    ),
    "zeros": ("/v1/logs", PROTOBUF, lambda: gzip.compress(bytes(100_000_000)) * 9),
}
