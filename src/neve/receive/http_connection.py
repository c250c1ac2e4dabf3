"""HTTP/1.1 on a port that anyone may reach: bounded in bytes and in time, whoever sends.

A protocol of our own on httptools' parser. Servers that serve applications leave to a proxy in
front of them how long a request may take to arrive and how large its head may be; they know nothing
of a budget; and where a client offers an upgrade, as Java's does (`Upgrade: h2c`), the parser drops
the body, so that the request would look empty, and succeed.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections import deque
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, cast

import httptools

from neve.errors import MalformedError, NeveError, UnavailableError
from neve.limits import MAX_DISCARDED_BYTES, MAX_HEAD_BYTES, MAX_PIPELINED_REQUESTS
from neve.otlp.encoding import check_size
from neve.otlp.http import Head, Response
from neve.receive.budget import TooSlowError

if TYPE_CHECKING:
    from neve.receive.budget import Share
    from neve.receive.http_server import HttpServer
    from neve.receive.request_handler import Export

logger = logging.getLogger(__name__)

NEVER = math.inf
END_OF_HEAD = b"\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# A server may ignore the offer to change protocols (RFC 9110, section 7.8).
_UPGRADE = re.compile(rb"\r\nupgrade[ \t]*:[^\r\n]*", re.IGNORECASE)
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
# How long a client that is being refused may go on sending before its connection is cut.
DRAIN_SECONDS = 5.0


@dataclass(slots=True)
class _Request:
    """A request that is arriving, or waits for its answer."""

    head: Head
    share: Share
    keep_alive: bool = True
    # What its body is for; None when it is answered by its head.
    export: Export | None = None
    answer: Response | None = None
    announced_bytes: int = 0
    received_bytes: int = 0
    parts: list[bytes] = field(default_factory=list)

    def refuse(self, answer: Response) -> None:
        """Answer with this, whatever else arrives; nothing of the body is kept."""
        self.answer = answer
        self.export = None
        self.parts.clear()
        self.share.close()


class HttpConnection(asyncio.Protocol):
    """One connection: requests are answered one after the other, in their order."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._routes = server.routes
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        # What came of a head that is not complete; None while the parser is inside a request.
        self._head: bytes | None = b""
        self._unparsed_bytes = 0
        self._path = b""
        self._headers: dict[bytes, bytes] = {}
        self._arriving: _Request | None = None
        self._waiting: deque[_Request] = deque()
        self._is_answering = False
        self._is_reading = True
        self._writing_paused = False
        self._ended_by_client = False
        self._last_answer_sent = False
        # So many requests wait for their answers that no more are taken.
        self._is_overfull = False
        # When the connection is cut: the request did not arrive, or none came.
        self.deadline = 0.0

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # Whoever connects has something to send; a connection is kept for those that did.
        self.deadline = self._server.now() + self._server.spec.request_timeout_seconds
        self._server.opened(self)

    def connection_lost(self, _: Exception | None) -> None:
        self._server.lost(self)
        self._transport = None
        if self._arriving is not None:
            self._arriving.share.close()
        while self._waiting:
            self._waiting.popleft().share.close()

    def data_received(self, data: bytes) -> None:
        if self._last_answer_sent or self._is_overfull:
            return
        if self._head is not None:
            if not self._head:
                self.deadline = self._server.now() + self._server.spec.request_timeout_seconds
            data = self._head + data
            end = data.find(END_OF_HEAD)
            self._head = data if end == -1 else None
            self._refuse_long_head(len(data) if end == -1 else end)
            if end == -1 or self._last_answer_sent:
                return
            data = without_upgrade(data, end)
        self._unparsed_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self._last_answer_sent or self._is_overfull:
                return
            self._answer_and_end(str(error) or type(error).__name__)
            return
        self._refuse_long_head(self._unparsed_bytes)

    def pause_writing(self) -> None:
        # Whoever does not read its answers may not send either.
        self._writing_paused = True
        self._choose_reading()

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._choose_reading()

    def eof_received(self) -> bool:
        self._ended_by_client = True
        # Requests that have arrived are still answered; TLS does not allow that.
        is_tls = self._transport is None or self._transport.get_extra_info("sslcontext")
        return self._is_answering and not is_tls

    def _choose_reading(self) -> None:
        """Read unless a request is being answered, or answers are not taken."""
        should_read = not self._is_answering and not self._writing_paused
        if self._transport is None or self._transport.is_closing():
            return
        if should_read and not self._is_reading:
            self._transport.resume_reading()
        elif self._is_reading and not should_read:
            self._transport.pause_reading()
        self._is_reading = should_read

    # The parser's side.

    def on_message_begin(self) -> None:
        if self._last_answer_sent or self._is_overfull:
            # Nothing behind this is answered, so the parser need not read it.
            raise httptools.HttpParserError("no more requests are taken")
        self._head = None
        self._path = b""
        self._headers = {}

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name in self._headers:
            value = self._headers[name] + b", " + value
        self._headers[name] = value

    def on_headers_complete(self) -> None:
        parser = self._parser
        if parser.should_upgrade():
            # Of such a request the parser drops the body: it must not be answered.
            raise httptools.HttpParserUpgrade("an upgrade is not offered here")
        head = Head(parser.get_method(), _path(self._path), self._headers)
        share = self._server.handler.budget.share(self._evict, self._server.now())
        request = self._arriving = _Request(head, share)
        request.keep_alive = parser.should_keep_alive() and parser.get_http_version() != "1.0"
        length = self._headers.get(b"content-length", b"")
        request.announced_bytes = int(length) if length.isdigit() else 0
        self._unparsed_bytes = 0
        self._route(request)
        asks_first = self._headers.get(b"expect", b"").lower() == b"100-continue"
        if request.answer is not None:
            if asks_first or request.announced_bytes > MAX_DISCARDED_BYTES:
                self._answer_at_once(request)
        elif asks_first and self._transport:
            self._transport.write(CONTINUE)

    def _route(self, request: _Request) -> None:
        head = request.head
        try:
            routed = self._routes.route(head)
            if isinstance(routed, Response):
                request.refuse(routed)
            else:
                check_size(request.announced_bytes, self._server.spec.max_request_bytes)
                request.export = routed
        except NeveError as error:
            request.refuse(self._routes.refusal(error, is_json=head.is_json))
        except Exception:
            # A defect of ours must not look like one of the sender's, who would drop its data.
            logger.exception("a request could not be routed")
            defect = UnavailableError("internal error")
            request.refuse(self._routes.refusal(defect, is_json=head.is_json))

    def on_body(self, body: bytes) -> None:
        self._unparsed_bytes = 0
        request = self._arriving
        if request is None:
            return
        request.received_bytes += len(body)
        if request.answer is not None:
            if request.received_bytes > MAX_DISCARDED_BYTES:
                self._answer_at_once(request)
            return
        try:
            # What is announced counts for nothing: only what came is held.
            check_size(request.received_bytes, self._server.spec.max_request_bytes)
            request.share.receive(request.received_bytes, self._server.now())
        except NeveError as error:
            request.refuse(self._routes.refusal(error, is_json=request.head.is_json))
            return
        request.parts.append(body)

    def _evict(self) -> None:
        """Give up the request that is arriving: it has stalled, and others need the room."""
        request = self._arriving
        if request is not None:
            error = TooSlowError("the body arrives too slowly")
            request.refuse(self._routes.refusal(error, is_json=request.head.is_json))
            self._answer_at_once(request)

    def on_message_complete(self) -> None:
        request, self._arriving = self._arriving, None
        self._head = b""
        self._unparsed_bytes = 0
        if request is None:
            return
        if self._last_answer_sent:
            request.share.close()
            return
        if request.export and request.received_bytes < request.announced_bytes:
            # Whatever dropped the rest: what is not whole must not be acknowledged.
            error = MalformedError(
                f"the body has {request.received_bytes} bytes instead of {request.announced_bytes}"
            )
            request.refuse(self._routes.refusal(error, is_json=request.head.is_json))
        self.deadline = NEVER
        request.share.arrived()
        self._waiting.append(request)
        self._is_overfull = len(self._waiting) >= MAX_PIPELINED_REQUESTS
        if not self._is_answering:
            # One request at a time: the next is read when this one is answered.
            self._is_answering = True
            self._choose_reading()
            self._server.start(self._answer_waiting())

    # Answers.

    async def _answer_waiting(self) -> None:
        try:
            while self._waiting:
                request = self._waiting.popleft()
                try:
                    response = request.answer or await self._export(request)
                finally:
                    request.share.close()
                self._write(request, response)
                if self._waiting:
                    # Answers to requests that were sent together must not keep others waiting.
                    await asyncio.sleep(0)
        except Exception:
            # A defect. Without an answer and a deadline the connection would stay for ever.
            logger.exception("a connection is cut, since its request cannot be answered")
            self.abort()
            return
        finally:
            self._is_answering = False
        if self._transport is None or self._last_answer_sent:
            return
        if self._ended_by_client:
            self._transport.close()
            return
        self._expect_request()
        self._choose_reading()

    async def _export(self, request: _Request) -> Response:
        if request.export is None:
            raise RuntimeError("a request without an answer has nothing to export")
        body = request.parts[0] if len(request.parts) == 1 else b"".join(request.parts)
        request.parts.clear()
        return await self._routes.export(request.export, body, request.share)

    def _write(self, request: _Request, response: Response) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or self._last_answer_sent:
            return
        response = self._routes.with_cors(request.head, response)
        is_last = self._is_overfull and not self._waiting
        keep_alive = request.keep_alive and not self._server.closing and not is_last
        is_head = request.head.method == b"HEAD"
        transport.write(encode(response, keep_alive=keep_alive, without_body=is_head))
        if not keep_alive:
            self._last_answer_sent = True
            transport.close()

    def _answer_at_once(self, request: _Request) -> None:
        """Refuse a body that is too long to be thrown away, and take no more of the connection."""
        if request.answer is not None:
            self._write_last(self._routes.with_cors(request.head, request.answer))

    def _answer_and_end(self, reason: str) -> None:
        is_json = self._arriving.head.is_json if self._arriving else True
        self._write_last(self._routes.not_http(reason, is_json=is_json))

    def _write_last(self, response: Response) -> None:
        """Write an answer while the client still sends, and let it read that before the end."""
        transport = self._transport
        if transport is None or transport.is_closing() or self._last_answer_sent:
            return
        if self._is_answering:
            # Answers of earlier requests would be mixed up with this one.
            transport.abort()
            return
        self._last_answer_sent = True
        self.deadline = self._server.now() + DRAIN_SECONDS
        transport.write(encode(response, keep_alive=False))
        if transport.can_write_eof():
            transport.write_eof()

    def _refuse_long_head(self, size: int) -> None:
        if size > MAX_HEAD_BYTES:
            self._answer_and_end(f"its head is larger than {MAX_HEAD_BYTES} bytes")

    def _expect_request(self) -> None:
        spec = self._server.spec
        # Of a request that was sent behind the last one, a part may be here already.
        has_begun = self._arriving is not None or self._head is None
        seconds = spec.request_timeout_seconds if has_begun else spec.keep_alive_seconds
        self.deadline = self._server.now() + seconds

    # The server's side.

    def close_when_idle(self) -> None:
        """Take no new requests; those that have arrived are answered."""
        is_idle = not self._is_answering and self._arriving is None and not self._head
        if is_idle and self._transport is not None:
            self._transport.close()

    def tick(self, now: float) -> None:
        """Cut the connection if its request does not arrive."""
        if self.deadline < now:
            self.abort()

    def abort(self) -> None:
        """Cut the connection."""
        if self._transport is not None:
            self._transport.abort()


def encode(response: Response, *, keep_alive: bool, without_body: bool = False) -> bytes:
    """Write a response as HTTP/1.1."""
    lines = [
        _STATUS_LINES[response.status],
        b"content-type: %b\r\n" % response.content_type.encode(),
        b"content-length: %d\r\n" % len(response.body),
        *(b"%b: %b\r\n" % header for header in response.headers),
    ]
    if not keep_alive:
        lines.append(b"connection: close\r\n")
    lines.append(b"\r\n")
    if not without_body:
        lines.append(response.body)
    return b"".join(lines)


def _path(target: bytes) -> bytes:
    """Return the path of a request's target, which may be a whole address (RFC 9112, 3.2.2)."""
    if not target.startswith(b"/"):
        try:
            target = httptools.parse_url(target).path or target
        except httptools.HttpParserInvalidURLError:
            return target
    return target.partition(b"?")[0]


def without_upgrade(data: bytes, end: int) -> bytes:
    """Take the offer to change protocols out of a head that ends at `end`."""
    head = _UPGRADE.sub(b"", data[:end])
    return data if len(head) == end else head + data[end:]
