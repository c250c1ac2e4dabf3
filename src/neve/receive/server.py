"""Run a receiver: listen, serve, and stop without losing what was taken."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import uvloop

from neve.buffer.buffer import open_buffer
from neve.config.address import Address, parse_address
from neve.errors import ConfigError, StorageError
from neve.observe.threads import ending_with_threads, unexpected_end
from neve.receive.connections import (
    Connections,
    connection_limit,
    descriptor_limit,
    raise_descriptor_limit,
)
from neve.receive.grpc_server import GrpcServer
from neve.receive.http_server import HttpServer
from neve.receive.ports import listen, warn_if_anyone_can_send
from neve.receive.reload import ReloadSource, reloading
from neve.receive.request_handler import RequestHandler, Sink
from neve.receive.spec import ReceiveSpec
from neve.receive.tls import ServerContext, replace_certificates, server_context
from neve.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from neve.buffer.buffer import Buffer
    from neve.buffer.spec import BufferSpec
    from neve.receive.counters import Counters

logger = logging.getLogger(__name__)

DRAIN_SHARE = 0.7
# How often the receiver looks whether it can still store requests.
LOOK_SECONDS = 1.0


class Receiver:
    """An OTLP receiver in this process's event loop."""

    def __init__(self, spec: ReceiveSpec, sink: Sink) -> None:
        self.spec = spec
        self.handler = RequestHandler(spec, sink)
        limit = connection_limit(descriptor_limit(), tls=spec.tls is not None)
        self.connections = Connections(self.handler.counters, limit)
        self.http_address = parse_address(spec.http)
        self.grpc_address = parse_address(spec.grpc)
        self._http: HttpServer | None = None
        self._grpc: GrpcServer | None = None
        self._contexts: list[ServerContext] = []

    @property
    def counters(self) -> Counters:
        """What was accepted, refused and dropped so far."""
        return self.handler.counters

    @property
    def _drain_seconds(self) -> float:
        # The rest of the grace period is the buffer's, to commit and to end its streams.
        return DRAIN_SHARE * self.spec.grace_seconds

    def use_credentials(self, spec: ReceiveSpec) -> None:
        """Use other tokens and certificates from now on; open connections stay.

        Raises:
            ConfigError: a certificate cannot be used; nothing has changed then.
        """
        tls = spec.tls if self.spec.tls else None
        if tls:
            replace_certificates(self._contexts, tls)
        self.handler.senders.replace(spec.tokens)
        self.spec = replace(self.spec, tokens=spec.tokens, tls=tls or self.spec.tls)

    def _server_context(self, protocols: Sequence[str]) -> ServerContext | None:
        if self.spec.tls is None:
            return None
        self._contexts.append(server_context(self.spec.tls, protocols))
        return self._contexts[-1]

    async def start(self) -> None:
        """Listen on both ports; the addresses then have the ports that were taken.

        Raises:
            ConfigError: an address cannot be bound, or a certificate cannot be used.
        """
        if not self.spec.share_ports:
            warn_if_anyone_can_send(self.spec)
        try:
            self._start_http()
            self._start_grpc()
        except ConfigError:
            await self.stop()
            raise
        logger.info("OTLP/HTTP on %s, OTLP/gRPC on %s", self.http_address, self.grpc_address)

    def _start_http(self) -> None:
        context = self._server_context(["http/1.1"])
        listening = listen(self.http_address, share_port=self.spec.share_ports)
        self.http_address = Address(self.http_address.host, listening.getsockname()[1])
        self._http = HttpServer(self.handler, self.connections)
        self._http.listen(listening, context)

    def _start_grpc(self) -> None:
        context = self._server_context(["h2"])
        listening = listen(self.grpc_address, share_port=self.spec.share_ports)
        self.grpc_address = Address(self.grpc_address.host, listening.getsockname()[1])
        self._grpc = GrpcServer(self.handler, self.connections, listening, context)

    def require_clocks(self) -> None:
        """Raise InternalError if what ends slow connections has ended."""
        for server in (self._http, self._grpc):
            if server is None or not server.clock.done():
                continue
            if error := server.clock.exception():
                raise unexpected_end(f"the clock of {type(server).__name__}", error) from error

    async def stop(self) -> bool:
        """Take no new requests, finish those taken, end the buffer's streams.

        Within the grace period; returns whether everything was done by then. What was
        acknowledged is safe in any case.
        """
        deadline = time.monotonic() + self.spec.grace_seconds
        self.handler.closing = True
        servers = [server for server in (self._http, self._grpc) if server is not None]
        await asyncio.gather(*(server.stop(self._drain_seconds) for server in servers))
        self.handler.close()
        left = max(0.1, deadline - time.monotonic())
        return await asyncio.to_thread(self.handler.sink.close, left)


def serve(
    spec: ReceiveSpec,
    buffer_spec: BufferSpec,
    *,
    on_ready: Callable[[Receiver], None] | None = None,
    reload_source: ReloadSource | None = None,
    on_signal: Callable[[int], None] | None = None,
) -> None:
    """Receive until SIGTERM or SIGINT, then stop within the grace period.

    Args:
        on_signal: is called at each of these signals, with its number.
        reload_source: where tokens and certificates are read again from while it runs.

    Raises:
        ConfigError: an address cannot be bound, or a certificate cannot be used.
        UnsupportedError, StorageError: the buffer's location cannot be used, or its writer died.
    """
    raise_descriptor_limit()
    uvloop.run(_serve(spec, buffer_spec, on_ready, reload_source, on_signal))


async def _serve(
    spec: ReceiveSpec,
    buffer_spec: BufferSpec,
    on_ready: Callable[[Receiver], None] | None,
    reload_source: ReloadSource | None,
    on_signal: Callable[[int], None] | None,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def handle(number: int) -> None:
        stop.set()
        if on_signal is not None:
            on_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, handle, number)
    # Must not end the process before `reloading` handles it, which reads the files first of all.
    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    with ending_with_threads(lambda: _set_from_a_thread(loop, stop)):
        buffer = await asyncio.to_thread(open_buffer, buffer_spec, [kind.value for kind in Signal])
        receiver = Receiver(spec, buffer)
        await receiver.start()
        try:
            async with reloading(receiver, reload_source):
                if on_ready is not None:
                    on_ready(receiver)
                await _until_stopped(stop, buffer, receiver)
        finally:
            logger.info("stopping")
            if not await receiver.stop():
                logger.warning("not everything was finished in time; the next receiver finishes it")


def _set_from_a_thread(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    # The loop is closed once the receiver has stopped, and needs no stop any more.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(stop.set)


async def _until_stopped(stop: asyncio.Event, buffer: Buffer, receiver: Receiver) -> None:
    """Wait for the end.

    Raises:
        StorageError: the buffer's writer is dead. Only a new process can go on, so this one ends;
            whoever started it, starts it again.
        InternalError: so is the clock of a port, which cuts slow connections.
    """
    while not stop.is_set():
        receiver.require_clocks()
        if not buffer.is_alive:
            raise StorageError(
                "the buffer's writer failed again and again, so this receiver ends",
                hint="the log says why; what was acknowledged is safe",
            )
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(stop.wait(), LOOK_SECONDS)
