"""What a receiver answers, in the content type it was asked in.

Success is the signal's response message, with `partial_success` unset unless something was
rejected; everything else is a `google.rpc.Status`.
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING

from google.protobuf import json_format
from google.protobuf.duration_pb2 import Duration
from google.rpc import code_pb2
from google.rpc.error_details_pb2 import BadRequest, RetryInfo
from google.rpc.status_pb2 import Status

from neve.errors import Code, NeveError, RequestError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.message import Message

    from neve.signals import Signal

PROTOBUF = "application/x-protobuf"
JSON = "application/json"

# What can never succeed says so. Everything else may pass: 503 and UNAVAILABLE are the answers that
# make real clients keep their data and try again (on 500 they drop it, some on 429, too).
HTTP_STATUS = MappingProxyType(
    {Code.MALFORMED: 400, Code.REFUSED: 401, Code.TOO_LARGE: 413, Code.UNSUPPORTED: 415}
)
HTTP_UNAVAILABLE = 503
GRPC_STATUS: Mapping[Code, int] = MappingProxyType(
    {
        Code.MALFORMED: code_pb2.INVALID_ARGUMENT,
        Code.REFUSED: code_pb2.UNAUTHENTICATED,
        Code.TOO_LARGE: code_pb2.RESOURCE_EXHAUSTED,
        Code.UNSUPPORTED: code_pb2.UNIMPLEMENTED,
    }
)
GRPC_UNAVAILABLE: int = code_pb2.UNAVAILABLE


def http_status(error: NeveError) -> int:
    """The HTTP status that tells a client whether to keep its data."""
    return HTTP_STATUS.get(error.code, HTTP_UNAVAILABLE)


def grpc_status(error: NeveError) -> int:
    """The gRPC status that tells a client whether to keep its data."""
    return GRPC_STATUS.get(error.code, GRPC_UNAVAILABLE)


def retry_after_seconds(error: NeveError, otherwise: int) -> int | None:
    """When the client should send again, in whole seconds; None when that would not help.

    Args:
        otherwise: for an error that does not know.
    """
    if http_status(error) != HTTP_UNAVAILABLE:
        return None
    known = error.retry_after_seconds if isinstance(error, UnavailableError) else None
    return otherwise if known is None else math.ceil(known)


def success(signal: Signal, *, rejected: int = 0, reason: str = "") -> Message:
    """The response to a request that was kept, but for `rejected` of its records.

    With a reason and nothing rejected it is a warning (OTLP specification, "Partial Success").
    """
    if not rejected and not reason:
        return signal.response()
    return signal.response(
        partial_success={signal.rejected_field: rejected, "error_message": reason}
    )


def failure(error: NeveError, retry_seconds: float | None) -> Status:
    """The body of a refusal: the message, when to try again, and the field that is at fault.

    Args:
        retry_seconds: when to try again; None when that would not help.
    """
    message = str(error)
    answer = status(grpc_status(error), message)
    if retry_seconds is not None:
        delay = Duration()
        delay.FromMilliseconds(math.ceil(retry_seconds * 1000))
        answer.details.add().Pack(RetryInfo(retry_delay=delay))
    if isinstance(error, RequestError) and error.field:
        violation = BadRequest.FieldViolation(field=error.field, description=error.message)
        answer.details.add().Pack(BadRequest(field_violations=[violation]))
    return answer


def status(code: int, message: str) -> Status:
    """A failure by its code."""
    return Status(code=code, message=message)


def content_type(*, json: bool) -> str:
    """The content type of an answer: that of its request."""
    return JSON if json else PROTOBUF


def encode(answer: Message, *, json: bool) -> bytes:
    """Write an answer in the form its request had."""
    if json:
        return json_format.MessageToJson(answer, indent=None).encode()
    return answer.SerializeToString()
