"""OTLP/HTTP as an ASGI application: the status codes and bodies of the specification."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING

from google.rpc import code_pb2
from starlette.middleware.cors import CORSMiddleware

from neve.errors import MalformedError, NeveError, TooLargeError, UnavailableError, UnsupportedError
from neve.otlp import answer
from neve.receive.senders import RefusedError
from neve.signals import Signal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from neve.receive.budget import Share
    from neve.receive.request_handler import RequestHandler

logger = logging.getLogger(__name__)

SIGNALS = MappingProxyType({signal.http_path: signal for signal in Signal})
HEALTH_PATH = "/healthz"
READY_PATH = "/readyz"
RPC_NOT_FOUND: int = code_pb2.NOT_FOUND
RPC_UNIMPLEMENTED: int = code_pb2.UNIMPLEMENTED


@dataclass(frozen=True, slots=True)
class Response:
    """An answer."""

    status: int
    body: bytes
    content_type: str
    headers: tuple[tuple[bytes, bytes], ...] = field(default=())


class DisconnectedError(Exception):
    """The client went away before its request was complete."""


def http_app(handler: RequestHandler) -> ASGIApp:
    """Return the application, with CORS if it is asked for."""
    app: ASGIApp = HttpApp(handler)
    if handler.spec.cors_origins:
        return CORSMiddleware(
            app,
            allow_origins=handler.spec.cors_origins,
            allow_methods=["POST"],
            allow_headers=["*"],
            max_age=7200,
        )
    return app


class HttpApp:
    """Answers one request after the other; holds no state of its own."""

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response = await self._answer(scope, receive)
        except DisconnectedError:
            return
        headers = [
            (b"content-type", response.content_type.encode()),
            (b"content-length", str(len(response.body)).encode()),
            *response.headers,
        ]
        start = {"type": "http.response.start", "status": response.status, "headers": headers}
        await send(start)
        body = b"" if scope["method"] == "HEAD" else response.body
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        path, method = scope["path"], scope["method"]
        if path in (HEALTH_PATH, READY_PATH):
            if method not in ("GET", "HEAD"):
                return _not_allowed("GET, HEAD")
            return self._health(ready=path == READY_PATH)
        if path not in SIGNALS:
            return _failure(HTTPStatus.NOT_FOUND, RPC_NOT_FOUND, f"nothing is served at {path}")
        if method != "POST":
            return _not_allowed("POST")
        return await self._export(SIGNALS[path], dict(scope["headers"]), receive)

    async def _export(
        self, signal: Signal, headers: dict[bytes, bytes], receive: Receive
    ) -> Response:
        is_json = _media_type(headers) != answer.PROTOBUF
        try:
            # Before anything of the body is read.
            sender = self._handler.senders.identify(_text(headers.get(b"authorization")))
            _check_media_type(headers)
            encoding = _text(headers.get(b"content-encoding")) or ""
            with self._handler.budget.share() as share:
                body = await self._read(headers.get(b"content-length"), receive, share)
                message = await self._handler.take(
                    signal, body, encoding=encoding, json=is_json, sender=sender
                )
        except NeveError as error:
            return self._refusal(error, is_json=is_json)
        except DisconnectedError:
            raise
        except Exception:
            # A defect of ours must not be answered with 500, on which clients drop their data.
            logger.exception("a request of %s failed", signal.value)
            return self._refusal(UnavailableError("internal error"), is_json=is_json)
        return Response(
            HTTPStatus.OK,
            answer.encode(message, json=is_json),
            answer.content_type(json=is_json),
        )

    async def _read(self, length: bytes | None, receive: Receive, share: Share) -> bytes:
        limit = self._handler.spec.max_request_bytes
        announced = int(length) if length and length.isdigit() else 0
        parts: list[bytes] = []
        received = 0
        more = True
        while more:
            _check_size(max(announced, received), limit)
            share.grow_to(max(announced, received))
            event = await receive()
            if event["type"] == "http.disconnect":
                raise DisconnectedError
            parts.append(event.get("body", b""))
            received += len(parts[-1])
            more = event.get("more_body", False)
        _check_size(received, limit)
        if announced and received != announced:
            # Whatever dropped the rest: what is not whole must not be acknowledged.
            raise MalformedError(f"the body has {received} bytes instead of {announced}")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _refusal(self, error: NeveError, *, is_json: bool) -> Response:
        self._handler.refuse(error)
        status = answer.http_status(error)
        retry = answer.retry_after_seconds(error, self._handler.spec.retry_after_seconds)
        headers: tuple[tuple[bytes, bytes], ...] = ()
        if retry is not None:
            headers = ((b"retry-after", str(retry).encode()),)
        elif isinstance(error, RefusedError):
            headers = ((b"www-authenticate", b"Bearer"),)
        body = answer.status(answer.grpc_status(error), _explain(error), retry_seconds=retry)
        return Response(
            status,
            answer.encode(body, json=is_json),
            answer.content_type(json=is_json),
            headers,
        )

    def _health(self, *, ready: bool) -> Response:
        reason = self._handler.trouble
        if ready and reason:
            body = json.dumps({"status": "unavailable", "reason": reason}).encode()
            return Response(HTTPStatus.SERVICE_UNAVAILABLE, body, answer.JSON)
        return Response(HTTPStatus.OK, b'{"status":"ok"}', answer.JSON)


def _media_type(headers: dict[bytes, bytes]) -> str:
    value = _text(headers.get(b"content-type")) or ""
    return value.partition(";")[0].strip().lower()


def _check_media_type(headers: dict[bytes, bytes]) -> None:
    media_type = _media_type(headers)
    if media_type not in (answer.PROTOBUF, answer.JSON):
        raise UnsupportedError(
            f"content type {media_type!r} is not supported",
            hint=f"send {answer.PROTOBUF} or {answer.JSON}",
        )


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise TooLargeError(
            f"the request is larger than {limit} bytes",
            hint="send smaller batches, or raise receive.max_request_bytes",
        )


def _explain(error: NeveError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message


def _text(header: bytes | None) -> str | None:
    return None if header is None else header.decode("latin-1")


def _failure(status: int, code: int, message: str) -> Response:
    body = answer.encode(answer.status(code, message), json=True)
    return Response(status, body, answer.JSON)


def _not_allowed(methods: str) -> Response:
    failure = _failure(HTTPStatus.METHOD_NOT_ALLOWED, RPC_UNIMPLEMENTED, f"use {methods}")
    allow = ((b"allow", methods.encode()),)
    return Response(failure.status, failure.body, failure.content_type, allow)
