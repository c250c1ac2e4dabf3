"""The service: its parts on threads of this process, and the receiver's processes if asked for.

It ends by a signal, or when one of its threads ends unexpectedly, with exit status 1. What fails is
tried again; while it fails, the buffer keeps what was acknowledged, and `/readyz` and the metrics
say so.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from prometheus_client import ProcessCollector

from neve.config.reference import secrets_to_mask
from neve.errors import NeveError
from neve.masking import SecretMask
from neve.observe import sentry
from neve.observe.http import Pages, serving
from neve.observe.metrics import Registry, supervision
from neve.observe.threads import ending_with_threads, unexpected_end
from neve.service.stopping import reloading_on_hangup, stopping_on_signals
from neve.service.workers import Ports, Workers

if TYPE_CHECKING:
    from neve.config import Settings

logger = logging.getLogger(__name__)

WAKE_SECONDS = 0.2


@dataclass(frozen=True)
class Started:
    """Where the service listens."""

    http: str | None
    grpc: str | None
    observe: str | None


class Part(Protocol):
    """Work that goes on beside other work, with a lake of its own if it needs one."""

    @property
    def trouble(self) -> str | None:
        """Why it fails at present; None when it does not."""

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set, and then to the end of the commit in progress."""

    def finish(self) -> None:
        """Do what is left when nothing comes in any more, if it is little."""


class Service:
    """Everything that runs together in one deployment on one machine."""

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        parts: Sequence[Part],
        receiver: Workers | None = None,
    ) -> None:
        self.parts = parts
        self.receiver = receiver
        self._registry = registry
        self._http = settings.observe.http
        # Whoever reaches /readyz reads what libraries say of their failures.
        self._mask = SecretMask(secrets_to_mask(settings))
        ProcessCollector(registry=registry)
        if receiver is not None:
            registry.register(supervision(lambda: receiver.is_up, lambda: receiver.restarts))

    def run(self, on_ready: Callable[[Started], None], stop: threading.Event | None = None) -> None:
        """Run until SIGTERM or SIGINT, then stop the receiver and finish what is in progress.

        Args:
            stop: what signals set already, of a caller that has more to close afterwards.

        Raises:
            ConfigError: an address cannot be listened on, or the receiver refuses to start.
            InternalError: a thread, or a part on it, ended unexpectedly; the others were stopped.
        """
        with (
            stopping_on_signals() if stop is None else nullcontext(stop) as stop,
            ending_with_threads(stop.set),
            reloading_on_hangup(self.reload),
            serving(self._http, Pages(self.metrics, self.trouble)) as observe,
        ):
            with self._receiving(stop) as ports:
                on_ready(Started(ports.http, ports.grpc, str(observe) if observe else None))
                self._work(stop)
            for part in self.parts:
                part.finish()

    def _work(self, stop: threading.Event) -> None:
        """Run each part on a thread of its own until `stop`; raise what ended one before."""

        def work(part: Part) -> None:
            try:
                part.run(stop)
            except NeveError:
                raise
            except Exception as error:
                name = type(part).__name__
                logger.exception("%s ended unexpectedly", name)
                sentry.capture(error, name)
                raise unexpected_end(name, error) from error
            finally:
                # Whole or not at all: whoever started the service sees it end, and starts it again.
                stop.set()

        if not self.parts:
            # Signals are handled on this thread alone, and if another took one, when it wakes.
            while not stop.wait(WAKE_SECONDS):
                pass
            return
        with ThreadPoolExecutor(len(self.parts), thread_name_prefix="neve-part") as pool:
            running = [pool.submit(work, part) for part in self.parts]
            # As above.
            while wait(running, WAKE_SECONDS).not_done:
                pass
        for part_run in running:
            part_run.result()

    @contextmanager
    def _receiving(self, stop: threading.Event) -> Iterator[Ports]:
        """Keep the receiver running until `stop`; yield where it listens."""
        if self.receiver is None:
            yield Ports(None, None)
            return
        receiver = self.receiver

        def stop_receiver() -> None:
            stop.wait()
            receiver.stop()

        # Beside the batch in progress: senders are refused at once, and go elsewhere.
        stopper = threading.Thread(target=stop_receiver, name="neve-stop-receiver", daemon=True)
        stopper.start()
        try:
            receiver.start()
            yield receiver.ports
        finally:
            stop.set()
            stopper.join()

    def reload(self) -> None:
        """Have the receiver read tokens and certificates again; the parts have none."""
        if self.receiver is not None:
            self.receiver.reload()

    def metrics(self) -> bytes:
        """Return the metrics of this process and of the receiver, so that one scrape has all."""
        return self._registry.text() + (self.receiver.metrics() if self.receiver else b"")

    def trouble(self) -> str | None:
        """Say everything that keeps the service from being ready; None when it is."""
        receiver_trouble = self.receiver.trouble if self.receiver else None
        troubles = [receiver_trouble, *(part.trouble for part in self.parts)]
        told = "; ".join(trouble for trouble in troubles if trouble is not None)
        return self._mask(told) or None
