"""The headers and trailers of gRPC answers."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING
from urllib.parse import quote

from google.rpc import code_pb2
from hpack import HeaderTuple, NeverIndexedHeaderTuple

from neve.compression import UNPACK
from neve.errors import Code, NeveError
from neve.otlp import answer
from neve.receive.budget import TooSlowError

if TYPE_CHECKING:
    from collections.abc import Sequence

    Headers = Sequence[tuple[bytes, bytes]]

ACCEPTED_ENCODINGS = ",".join(("identity", *UNPACK)).encode()
CONTENT_TYPE = HeaderTuple(b"content-type", b"application/grpc")
RESPONSE_HEADERS: Headers = (HeaderTuple(b":status", b"200"), CONTENT_TYPE)
OK_TRAILERS: Headers = (HeaderTuple(b"grpc-status", b"0"),)
# Clients bound their headers, often to 8 KiB.
MAX_MESSAGE_CHARACTERS = 1000
# Printable ASCII but the percent sign stands for itself (gRPC over HTTP/2, "Status-Message").
_PLAIN = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
DEADLINE_EXCEEDED: int = code_pb2.DEADLINE_EXCEEDED


class CallRefusedError(NeveError):
    """A call that is refused by the rules of gRPC; the reason is a word for the counters."""

    default_code = Code.UNSUPPORTED

    def __init__(self, reason: str, message: str, *, code: Code | None = None) -> None:
        super().__init__(message, code=code)
        self.reason = reason


class NotGrpcError(Exception):
    """A request of HTTP/2 that is not gRPC, answered by an HTTP status alone."""

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


def error_headers(error: NeveError, retry_seconds: int) -> Headers:
    """Return an answer without a message, of headers only."""
    code = answer.grpc_status(error)
    if isinstance(error, TooSlowError):
        # OTLP clients send again after it as after UNAVAILABLE, and the person who reads it learns
        # that the network or the sender was slow, not the receiver.
        code = DEADLINE_EXCEEDED
    details = answer.failure(error, answer.retry_after_seconds(error, retry_seconds))
    details.code = code
    message = details.message = details.message[:MAX_MESSAGE_CHARACTERS]
    packed = base64.b64encode(details.SerializeToString()).rstrip(b"=")
    headers = [
        *RESPONSE_HEADERS,
        HeaderTuple(b"grpc-status", str(code).encode()),
        # Not into the table of headers seen before: they differ from error to error.
        NeverIndexedHeaderTuple(b"grpc-message", quote(message, safe=_PLAIN).encode()),
        NeverIndexedHeaderTuple(b"grpc-status-details-bin", packed),
    ]
    if error.code is Code.UNSUPPORTED:
        headers.append(HeaderTuple(b"grpc-accept-encoding", ACCEPTED_ENCODINGS))
    return headers


def http_headers(status: int) -> Headers:
    """Return the answer to what is not gRPC."""
    return (HeaderTuple(b":status", str(status).encode()),)
