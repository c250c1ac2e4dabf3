"""OTLP/gRPC: the three Export calls, on messages kept as the bytes they came in."""

from __future__ import annotations

import logging
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import grpc

from neve.errors import NeveError, UnavailableError
from neve.otlp import answer
from neve.signals import Signal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from neve.receive.request_handler import RequestHandler

    Handler = grpc.GenericRpcHandler[bytes, bytes]
    Context = grpc.aio.ServicerContext[bytes, bytes]
else:
    # The types' parameters are known to type checkers only.
    Handler = grpc.GenericRpcHandler

logger = logging.getLogger(__name__)

CALLS = MappingProxyType({signal.grpc_method: signal for signal in Signal})
STATUS_CODES = MappingProxyType({code.value[0]: code for code in grpc.StatusCode})
STATUS_DETAILS = "grpc-status-details-bin"
# No protobuf message begins like this: it would be a field of a wire type that does not exist.
GZIP_START = b"\x1f\x8b"
IDENTITY_AND_GZIP = 0b101
MAX_CONCURRENT_STREAMS = 256


def server_options(max_request_bytes: int, *, share_port: bool) -> list[tuple[str, int]]:
    """Return the channel arguments of the server."""
    return [
        # Two receivers must not share a port unnoticed; the workers of one do.
        ("grpc.so_reuseport", int(share_port)),
        ("grpc.max_receive_message_length", max_request_bytes),
        ("grpc.max_concurrent_streams", MAX_CONCURRENT_STREAMS),
        # Messages come as they were sent: unpacked here under our limit, and kept compressed.
        ("grpc.per_message_decompression", 0),
        ("grpc.compression_enabled_algorithms_bitset", IDENTITY_AND_GZIP),
    ]


class ExportHandler(Handler):
    """Finds the handler of a call; refuses before the message is read where it can."""

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return what handles a call; None answers UNIMPLEMENTED."""
        signal = CALLS.get(handler_call_details.method)
        if signal is None:
            return None
        metadata = dict(handler_call_details.invocation_metadata or ())
        try:
            sender = self._handler.senders.sender(_text(metadata.get("authorization")))
        except NeveError as error:
            # A handler of streams is called before the first message is read.
            return grpc.stream_unary_rpc_method_handler(self._refuser(error))
        return grpc.unary_unary_rpc_method_handler(self._exporter(signal, sender))

    def _refuser(self, error: NeveError) -> Callable[..., Awaitable[bytes]]:
        async def refuse(_: AsyncIterator[bytes], context: Context) -> bytes:
            await self._abort(context, error)
            return b""

        return refuse

    def _exporter(self, signal: Signal, sender: bytes) -> Callable[..., Awaitable[bytes]]:
        async def export(body: bytes, context: Context) -> bytes:
            try:
                with self._handler.budget.share() as share:
                    share.grow_to(len(body))
                    encoding = "gzip" if body.startswith(GZIP_START) else ""
                    message = await self._handler.take(
                        signal, body, encoding=encoding, json=False, sender=sender
                    )
                return answer.encode(message, json=False)
            except NeveError as error:
                await self._abort(context, error)
            except Exception:
                # A defect of ours must not become UNKNOWN, on which clients drop their data.
                logger.exception("a request of %s failed", signal.value)
                await self._abort(context, UnavailableError("internal error"))
            return b""

        return export

    async def _abort(self, context: Context, error: NeveError) -> None:
        self._handler.refuse(error)
        code = answer.grpc_status(error)
        unavailable = code == answer.GRPC_UNAVAILABLE
        retry = self._handler.spec.retry_after_seconds if unavailable else None
        details = answer.status(code, error.message, retry_seconds=retry)
        await context.abort(
            STATUS_CODES[code],
            error.message,
            trailing_metadata=((STATUS_DETAILS, details.SerializeToString()),),
        )


def _text(value: str | bytes | None) -> str | None:
    return value.decode("latin-1") if isinstance(value, bytes) else value
