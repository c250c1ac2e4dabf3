"""The receiver as a process that can be watched: `neve serve`."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from neve.buffer.spec import buffer_spec
from neve.observe.http import Pages, serving
from neve.observe.metrics import Registry, common_labels
from neve.observe.receiving import ReceiverNumbers, receiving
from neve.receive.reload import ReloadSource
from neve.receive.server import Receiver, serve
from neve.receive.spec import receive_spec
from neve.service.stopping import answer_signals

if TYPE_CHECKING:
    from neve.config import Loaded, Settings
    from neve.config.address import Address
    from neve.receive.request_handler import RequestHandler


def receiver_numbers(handler: RequestHandler) -> ReceiverNumbers:
    """Read what a receiver counts; its event loop goes on counting meanwhile."""
    counters, sink = handler.counters, handler.sink
    return ReceiverNumbers(
        totals=counters.totals(),
        acknowledgements=counters.acknowledgements.read(),
        in_flight_bytes=handler.budget.used_bytes,
        connections=dict(counters.connections),
        buffered_bytes=sink.used_bytes,
        fsyncs={signal: durations.read() for signal, durations in sink.fsyncs.items()},
        forgotten=sink.forgotten,
    )


@contextmanager
def observed(receiver: Receiver, settings: Settings) -> Iterator[Address | None]:
    """Serve a receiver's metrics and health while the block runs."""
    registry = Registry(common_labels(settings))
    registry.register(receiving(lambda: receiver_numbers(receiver.handler)))
    handler = receiver.handler
    pages = Pages(registry.text, lambda: handler.trouble, lambda: handler.defect)
    with serving(settings.observe.http, pages) as address:
        yield address


@dataclass(frozen=True)
class Listening:
    """Where a receiver listens, with the ports that were taken."""

    http: str
    grpc: str
    observe: str | None


def serve_observed(
    loaded: Loaded,
    load: Callable[[], Loaded],
    on_ready: Callable[[Listening], None],
    *,
    share_ports: bool = False,
    is_supervised: bool = False,
) -> None:
    """Receive in this process until SIGTERM or SIGINT; see `neve.receive.server.serve`.

    Args:
        load: reads the configuration again, for new tokens and certificates.
        share_ports: be one of several workers on the same ports.
        is_supervised: another process says that it stops, and kills this one if that takes long.
            A second signal changes nothing: systemd sends one to each process, the supervisor
            another.
    """
    settings = loaded.settings
    with ExitStack() as stack:

        def ready(receiver: Receiver) -> None:
            observe = stack.enter_context(observed(receiver, settings))
            on_ready(
                Listening(
                    str(receiver.http_address),
                    str(receiver.grpc_address),
                    str(observe) if observe else None,
                )
            )

        serve(
            replace(receive_spec(settings), share_ports=share_ports),
            buffer_spec(settings),
            on_ready=ready,
            reload_source=ReloadSource(loaded, load),
            on_signal=None if is_supervised else answer_signals(),
        )


def end_with_parent() -> None:
    """Stop as by SIGTERM once standard input ends: whoever supervises this process is gone."""

    def wait() -> None:
        try:
            while os.read(sys.stdin.fileno(), 1024):
                pass
        finally:
            # Also when it cannot be read: nobody else would end this process.
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="neve-parent", daemon=True).start()
