"""OTLP/HTTP: what each path answers, with the status codes and bodies of the specification."""

from __future__ import annotations

import json
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING

from neve.errors import NeveError, UnavailableError
from neve.otlp import answer, http
from neve.otlp.http import SIGNALS, Head, Headers, Response
from neve.signals import Signal

if TYPE_CHECKING:
    from neve.receive.budget import Share
    from neve.receive.request_handler import Export, RequestHandler

logger = logging.getLogger(__name__)

HEALTH_PATH = b"/healthz"
READY_PATH = b"/readyz"
CORS_MAX_AGE_SECONDS = 7200


class Routes:
    """Finds out what a request is for, and answers it."""

    def __init__(self, handler: RequestHandler) -> None:
        self.handler = handler
        self._origins = frozenset(origin.encode() for origin in handler.spec.cors_origins)
        self._successes = {
            (signal, is_json): http.success(answer.success(signal), is_json=is_json)
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
        # The sender first: whoever may not send learns nothing else.
        export = self.handler.admit(
            signal,
            head.text(b"authorization"),
            encoding=head.text(b"content-encoding") or "",
            is_json=head.is_json,
        )
        head.require_otlp()
        return export

    def _route_others(self, head: Head) -> Response:
        if head.path in (HEALTH_PATH, READY_PATH):
            if head.method not in (b"GET", b"HEAD"):
                return self._not_allowed(head, "GET, HEAD")
            return self._health(ready=head.path == READY_PATH)
        self.handler.counters.refuse("unknown_path")
        return http.not_found(head)

    def _not_allowed(self, head: Head, methods: str) -> Response:
        self.handler.counters.refuse("http_method")
        return http.not_allowed(head, methods)

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
        if message.ByteSize():
            return http.success(message, is_json=export.is_json)
        return self._successes[export.signal, export.is_json]

    def refusal(self, error: NeveError, *, is_json: bool) -> Response:
        """Count an error, and write it down for the sender."""
        self.handler.refuse(error)
        return http.refusal(error, self.handler.spec.retry_after_seconds, is_json=is_json)

    def not_http(self, reason: str, *, is_json: bool) -> Response:
        """Answer bytes that are no HTTP request."""
        self.handler.counters.refuse("not_http")
        return http.not_http(reason, is_json=is_json)

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
