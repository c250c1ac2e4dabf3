"""OTLP/HTTP apart from any server: what a request's head says, and how each answer is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING

from google.rpc import code_pb2

from neve.errors import UnsupportedError
from neve.otlp import answer
from neve.otlp.bearer_tokens import RefusedError
from neve.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.message import Message

    from neve.errors import NeveError

Headers = tuple[tuple[bytes, bytes], ...]

SIGNALS: Mapping[bytes, Signal] = MappingProxyType(
    {signal.http_path.encode(): signal for signal in Signal}
)
_PATH_CHARACTERS = 200
_NOT_FOUND: int = code_pb2.NOT_FOUND
_UNIMPLEMENTED: int = code_pb2.UNIMPLEMENTED
_INVALID_ARGUMENT: int = code_pb2.INVALID_ARGUMENT


@dataclass(frozen=True, slots=True)
class Response:
    """An answer."""

    status: int
    body: bytes
    content_type: str
    headers: Headers = field(default=())


@dataclass(slots=True)
class Head:
    """The request line and the headers of a request; names in lower case."""

    method: bytes
    path: bytes
    headers: Mapping[bytes, bytes]

    @property
    def media_type(self) -> str:
        return _media_type(self.headers.get(b"content-type", b""))

    @property
    def is_json(self) -> bool:
        """Whether errors are written as JSON: always, unless the request is protobuf."""
        return self.media_type != answer.PROTOBUF

    def text(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    def require_otlp(self) -> None:
        """Refuse a body that is neither protobuf nor JSON. Raises UnsupportedError."""
        if self.media_type not in (answer.PROTOBUF, answer.JSON):
            raise UnsupportedError(
                f"content type {self.media_type!r} is not supported",
                hint=f"send {answer.PROTOBUF} or {answer.JSON}",
            )


def success(message: Message, *, is_json: bool) -> Response:
    """Write the signal's response message."""
    body = answer.encode(message, json=is_json)
    return Response(HTTPStatus.OK, body, answer.content_type(json=is_json))


def refusal(error: NeveError, retry_after_seconds: int, *, is_json: bool) -> Response:
    """Write an error down for the sender.

    Args:
        retry_after_seconds: for an error that does not know.
    """
    retry = answer.retry_after_seconds(error, retry_after_seconds)
    headers: Headers = ()
    if retry is not None:
        headers = ((b"retry-after", str(retry).encode()),)
    elif isinstance(error, RefusedError):
        headers = ((b"www-authenticate", b"Bearer"),)
    return Response(
        answer.http_status(error),
        answer.encode(answer.failure(error, retry), json=is_json),
        answer.content_type(json=is_json),
        headers,
    )


def not_found(head: Head) -> Response:
    """Answer a path that nothing is served at."""
    path = head.path[:_PATH_CHARACTERS].decode("latin-1")
    message = f"nothing is served at {path}"
    return _failure(HTTPStatus.NOT_FOUND, _NOT_FOUND, message, is_json=head.is_json)


def not_allowed(head: Head, methods: str) -> Response:
    """Answer a method that a path does not have."""
    headers = ((b"allow", methods.encode()),)
    return _failure(
        HTTPStatus.METHOD_NOT_ALLOWED,
        _UNIMPLEMENTED,
        f"use {methods}",
        is_json=head.is_json,
        headers=headers,
    )


def not_http(reason: str, *, is_json: bool) -> Response:
    """Answer what is no HTTP request."""
    message = f"this is not an HTTP request: {reason}"
    return _failure(HTTPStatus.BAD_REQUEST, _INVALID_ARGUMENT, message, is_json=is_json)


@lru_cache(maxsize=64)
def _media_type(content_type: bytes) -> str:
    return content_type.partition(b";")[0].strip().lower().decode("latin-1")


def _failure(
    status: int, code: int, message: str, *, is_json: bool, headers: Headers = ()
) -> Response:
    body = answer.encode(answer.status(code, message), json=is_json)
    return Response(status, body, answer.content_type(json=is_json), headers)
