"""OTLP/HTTP: what each path answers, with the status codes and bodies of the specification."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING

from google.rpc import code_pb2

from neve.errors import NeveError, UnavailableError, UnsupportedError
from neve.otlp import answer
from neve.receive.senders import RefusedError
from neve.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from neve.receive.budget import Share
    from neve.receive.request_handler import Export, RequestHandler

logger = logging.getLogger(__name__)

Headers = tuple[tuple[bytes, bytes], ...]

SIGNALS = MappingProxyType({signal.http_path.encode(): signal for signal in Signal})
HEALTH_PATH = b"/healthz"
READY_PATH = b"/readyz"
RPC_NOT_FOUND: int = code_pb2.NOT_FOUND
RPC_UNIMPLEMENTED: int = code_pb2.UNIMPLEMENTED
RPC_INVALID_ARGUMENT: int = code_pb2.INVALID_ARGUMENT
CORS_MAX_AGE_SECONDS = 7200


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


class Routes:
    """Finds out what a request is for, and answers it."""

    def __init__(self, handler: RequestHandler) -> None:
        self.handler = handler
        self._origins = frozenset(origin.encode() for origin in handler.spec.cors_origins)
        self._successes = {
            (signal, is_json): Response(
                HTTPStatus.OK,
                answer.encode(answer.success(signal), json=is_json),
                answer.content_type(json=is_json),
            )
            for signal in Signal
            for is_json in (False, True)
        }

    def route(self, head: Head) -> Export | Response:
        """Answer by the head of a request, or say what its body is for.

        Raises:
            NeveError: the request would be refused, whatever its body.
        """
        signal = SIGNALS.get(head.path)
        if signal is None:
            return self._route_others(head)
        if head.method != b"POST":
            if head.method == b"OPTIONS" and self._origins:
                return self._preflight(head)
            return self._not_allowed(head, "POST")
        media_type = head.media_type
        # The sender first: whoever may not send learns nothing else.
        export = self.handler.admit(
            signal,
            head.text(b"authorization"),
            encoding=head.text(b"content-encoding") or "",
            is_json=media_type != answer.PROTOBUF,
        )
        if media_type not in (answer.PROTOBUF, answer.JSON):
            raise UnsupportedError(
                f"content type {media_type!r} is not supported",
                hint=f"send {answer.PROTOBUF} or {answer.JSON}",
            )
        return export

    def _route_others(self, head: Head) -> Response:
        if head.path in (HEALTH_PATH, READY_PATH):
            if head.method not in (b"GET", b"HEAD"):
                return self._not_allowed(head, "GET, HEAD")
            return self._health(ready=head.path == READY_PATH)
        self.handler.counters.refuse("unknown_path")
        path = head.path[:200].decode("latin-1")
        message = f"nothing is served at {path}"
        return _failure(HTTPStatus.NOT_FOUND, RPC_NOT_FOUND, message, is_json=head.is_json)

    def _not_allowed(self, head: Head, methods: str) -> Response:
        self.handler.counters.refuse("http_method")
        return _failure(
            HTTPStatus.METHOD_NOT_ALLOWED,
            RPC_UNIMPLEMENTED,
            f"use {methods}",
            is_json=head.is_json,
            headers=((b"allow", methods.encode()),),
        )

    async def export(self, export: Export, body: bytes, share: Share) -> Response:
        """Store a request; the answer says whether that was done."""
        try:
            message = await self.handler.take(export, body, share)
        except NeveError as error:
            return self.refusal(error, is_json=export.is_json)
        except Exception:
            # A defect of ours must not be answered with 500, on which clients drop their data.
            logger.exception("a request of %s failed", export.signal.value)
            return self.refusal(UnavailableError("internal error"), is_json=export.is_json)
        success = self._successes[export.signal, export.is_json]
        if message.ByteSize():
            body = answer.encode(message, json=export.is_json)
            return Response(success.status, body, success.content_type)
        return success

    def refusal(self, error: NeveError, *, is_json: bool) -> Response:
        """Count an error, and write it down for the sender."""
        self.handler.refuse(error)
        retry = answer.retry_after_seconds(error, self.handler.spec.retry_after_seconds)
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

    def not_http(self, reason: str, *, is_json: bool) -> Response:
        """Answer bytes that are no HTTP request."""
        self.handler.counters.refuse("not_http")
        message = f"this is not an HTTP request: {reason}"
        return _failure(HTTPStatus.BAD_REQUEST, RPC_INVALID_ARGUMENT, message, is_json=is_json)

    def with_cors(self, head: Head, response: Response) -> Response:
        """Let the page that sent a request read the answer, where its origin is allowed."""
        origin = head.headers.get(b"origin")
        if not self._origins or origin is None or not self._allows(origin):
            return response
        headers = (*response.headers, *self._allow_origin(origin))
        return Response(response.status, response.body, response.content_type, headers)

    def _preflight(self, head: Head) -> Response:
        origin = head.headers.get(b"origin", b"")
        if not self._allows(origin):
            return Response(HTTPStatus.BAD_REQUEST, b"Disallowed CORS origin", "text/plain")
        headers = [
            (b"access-control-allow-methods", b"POST"),
            (b"access-control-max-age", str(CORS_MAX_AGE_SECONDS).encode()),
        ]
        if asked := head.headers.get(b"access-control-request-headers"):
            headers.append((b"access-control-allow-headers", asked))
        return Response(HTTPStatus.OK, b"OK", "text/plain", tuple(headers))

    def _allows(self, origin: bytes) -> bool:
        return b"*" in self._origins or origin in self._origins

    def _allow_origin(self, origin: bytes) -> Headers:
        if b"*" in self._origins:
            return ((b"access-control-allow-origin", b"*"),)
        return ((b"access-control-allow-origin", origin), (b"vary", b"Origin"))

    def _health(self, *, ready: bool) -> Response:
        reason = self.handler.trouble if ready else self.handler.defect
        if reason:
            body = json.dumps({"status": "unavailable", "reason": reason}).encode()
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, body, answer.JSON)
        return Response(HTTPStatus.OK, b'{"status":"ok"}', answer.JSON)


@lru_cache(maxsize=64)
def _media_type(content_type: bytes) -> str:
    return content_type.partition(b";")[0].strip().lower().decode("latin-1")


def _failure(
    status: int, code: int, message: str, *, is_json: bool, headers: Headers = ()
) -> Response:
    body = answer.encode(answer.status(code, message), json=is_json)
    return Response(status, body, answer.content_type(json=is_json), headers)
