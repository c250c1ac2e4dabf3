"""Run a receiver: listen, serve, and stop without losing what was taken."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import ssl
import time
from typing import TYPE_CHECKING, cast

import uvicorn

from neve.buffer.buffer import open_buffer
from neve.config.address import Address, parse_address
from neve.errors import ConfigError
from neve.receive.connections import (
    Connections,
    connection_limit,
    descriptor_limit,
    raise_descriptor_limit,
)
from neve.receive.grpc_server import GrpcServer
from neve.receive.http import http_app
from neve.receive.http_protocol import BoundedProtocol, bounded
from neve.receive.listener import Listener
from neve.receive.request_handler import RequestHandler, Sink
from neve.receive.tls import server_context
from neve.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from neve.buffer.spec import BufferSpec
    from neve.receive.counters import Counters
    from neve.receive.spec import ReceiveSpec

logger = logging.getLogger(__name__)

BACKLOG = 1024
DRAIN_SHARE = 0.7


class _HttpServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config)
        self._connections = connections

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept as many connections as may be open, which uvicorn would not bound."""
        await super().startup(sockets=[])
        self.servers = [
            cast(
                "asyncio.Server",
                Listener(listening, self._protocol, self._connections, self.config.ssl),
            )
            for listening in sockets or []
        ]

    def _protocol(self) -> asyncio.Protocol:
        protocol = cast("type[BoundedProtocol]", self.config.http_protocol_class)
        return protocol(self.config, self.server_state, self.lifespan.state)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the receiver, which has more to stop than this."""
        yield


class Receiver:
    """An OTLP receiver in this process's event loop."""

    def __init__(self, spec: ReceiveSpec, sink: Sink) -> None:
        self._spec = spec
        self.handler = RequestHandler(spec, sink)
        limit = connection_limit(descriptor_limit(), tls=spec.tls is not None)
        self.connections = Connections(self.handler.counters, limit)
        self.http_address = parse_address(spec.http)
        self.grpc_address = parse_address(spec.grpc)
        self._http: _HttpServer | None = None
        self._http_task: asyncio.Task[None] | None = None
        self._grpc: GrpcServer | None = None

    @property
    def counters(self) -> Counters:
        """What was accepted, refused and dropped so far."""
        return self.handler.counters

    @property
    def _drain_seconds(self) -> float:
        # The rest of the grace period is the buffer's, to commit and to end its streams.
        return DRAIN_SHARE * self._spec.grace_seconds

    async def start(self) -> None:
        """Listen on both ports; the addresses then have the ports that were taken.

        Raises:
            ConfigError: an address cannot be bound, or a certificate cannot be used.
        """
        for name, address in (("http", self.http_address), ("grpc", self.grpc_address)):
            if not self._spec.tokens and not address.is_loopback:
                logger.warning(
                    "receive.%s listens on %s without receive.tokens: whoever reaches it can send",
                    name,
                    address,
                )
        try:
            await self._start_http()
            self._start_grpc()
        except ConfigError:
            await self.stop()
            raise
        logger.info("OTLP/HTTP on %s, OTLP/gRPC on %s", self.http_address, self.grpc_address)

    async def _start_http(self) -> None:
        tls = self._spec.tls
        config = uvicorn.Config(
            http_app(self.handler),
            http=bounded(self._spec.request_timeout_seconds, self.connections),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=self._spec.keep_alive_seconds,
            timeout_graceful_shutdown=max(1, int(self._drain_seconds)),
            ssl_certfile=tls.cert if tls else None,
            ssl_keyfile=tls.key if tls else None,
            ssl_ca_certs=tls.client_ca if tls else None,
            ssl_cert_reqs=ssl.CERT_REQUIRED if tls and tls.client_ca else ssl.CERT_NONE,
        )
        try:
            config.load()
        except OSError as error:
            raise ConfigError(f"receive.tls cannot be used: {error}") from error
        listening = _listen(self.http_address)
        self.http_address = Address(self.http_address.host, listening.getsockname()[1])
        self._http = _HttpServer(config, self.connections)
        self._http_task = asyncio.create_task(self._http.serve(sockets=[listening]))
        while not self._http.started and not self._http_task.done():
            await asyncio.sleep(0.001)

    def _start_grpc(self) -> None:
        tls = self._spec.tls
        context = server_context(tls, ["h2"]) if tls else None
        listening = _listen(self.grpc_address)
        self.grpc_address = Address(self.grpc_address.host, listening.getsockname()[1])
        self._grpc = GrpcServer(self.handler, self.connections, listening, context)

    async def stop(self) -> bool:
        """Take no new requests, finish those taken, end the buffer's streams.

        Within the grace period; returns whether everything was done by then. What was
        acknowledged is safe in any case.
        """
        deadline = time.monotonic() + self._spec.grace_seconds
        self.handler.closing = True
        if self._http is not None:
            self._http.should_exit = True
        stopping = [] if self._http_task is None else [self._http_task]
        if self._grpc is not None:
            stopping.append(asyncio.ensure_future(self._grpc.stop(self._drain_seconds)))
        if stopping:
            await asyncio.wait(stopping, timeout=self._spec.grace_seconds)
        self.handler.close()
        left = max(0.1, deadline - time.monotonic())
        return await asyncio.to_thread(self.handler.sink.close, left)


def serve(
    spec: ReceiveSpec,
    buffer_spec: BufferSpec,
    *,
    on_ready: Callable[[Receiver], None] | None = None,
) -> None:
    """Receive until SIGTERM or SIGINT, then stop within the grace period.

    Raises:
        ConfigError: an address cannot be bound, or a certificate cannot be used.
        UnsupportedError, StorageError: the buffer's location cannot be used.
    """
    raise_descriptor_limit()
    asyncio.run(_serve(spec, buffer_spec, on_ready))


async def _serve(
    spec: ReceiveSpec, buffer_spec: BufferSpec, on_ready: Callable[[Receiver], None] | None
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    buffer = await asyncio.to_thread(open_buffer, buffer_spec, [kind.value for kind in Signal])
    receiver = Receiver(spec, buffer)
    await receiver.start()
    try:
        if on_ready is not None:
            on_ready(receiver)
        await stop.wait()
    finally:
        logger.info("stopping")
        if not await receiver.stop():
            logger.warning("not everything was finished in time; the next receiver finishes it")


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address.host, address.port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise _cannot_listen(address, error) from error
    return listening


def _cannot_listen(address: Address, error: Exception) -> ConfigError:
    return ConfigError(
        f"cannot listen on {address}: {error}",
        hint="choose another address in receive.http or receive.grpc",
    )
