"""The service: its parts on threads of this process, and the receiver as a child if asked for.

It ends by a signal and nothing else. What fails is tried again; while it fails, the buffer keeps
what was acknowledged, and `/readyz` and the metrics say so.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any, Protocol

from prometheus_client import ProcessCollector

from neve.config.address import parse_address
from neve.observe.http import Pages, serving
from neve.observe.metrics import Registry, supervision
from neve.service.stopping import reloading_on_hangup, stopping_on_signals
from neve.service.supervise import Supervisor

if TYPE_CHECKING:
    from neve.config import Settings

ASK_SECONDS = 5.0
WAKE_SECONDS = 0.2
# The receiver's own metrics and health: on any free port of this machine, for this process to ask.
RECEIVER_OBSERVE = {"NEVE_OBSERVE__HTTP": "127.0.0.1:0"}


@dataclass(frozen=True)
class Started:
    """Where the service listens."""

    http: str | None
    grpc: str | None
    observe: str | None


def supervised_receiver(arguments: list[str]) -> Supervisor:
    """Return `neve serve` as a child of this process.

    Args:
        arguments: the global options it is to be called with.
    """
    command = [sys.executable, "-m", "neve", *arguments, "serve", "--supervised"]
    return Supervisor("receiver", command, RECEIVER_OBSERVE)


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
        receiver: Supervisor | None = None,
    ) -> None:
        self.parts = parts
        self.receiver = receiver
        self._registry = registry
        self._http = settings.observe.http
        ProcessCollector(registry=registry)
        if receiver is not None:
            registry.register(supervision(lambda: receiver.is_up, lambda: receiver.restarts))

    def run(self, on_ready: Callable[[Started], None]) -> None:
        """Run until SIGTERM or SIGINT, then stop the receiver and finish what is in progress.

        Raises:
            ConfigError: an address cannot be listened on, or the receiver refuses to start.
        """
        with (
            stopping_on_signals() as stop,
            reloading_on_hangup(self.reload),
            serving(self._http, Pages(self.metrics, self.trouble)) as observe,
        ):
            with self._receiving(stop) as listening:
                on_ready(
                    Started(
                        listening.get("http"),
                        listening.get("grpc"),
                        str(observe) if observe else None,
                    )
                )
                self._work(stop)
            for part in self.parts:
                part.finish()

    def _work(self, stop: threading.Event) -> None:
        """Run each part on a thread of its own until `stop`; raise what ended one before."""

        def work(part: Part) -> None:
            try:
                part.run(stop)
            finally:
                # Whole or not at all: whoever started the service sees it end, and starts it again.
                stop.set()

        with ThreadPoolExecutor(len(self.parts), thread_name_prefix="neve-part") as pool:
            running = [pool.submit(work, part) for part in self.parts]
            # Signals are handled on this thread alone, and if another took one, when it wakes.
            while wait(running, WAKE_SECONDS).not_done:
                pass
        for one in running:
            one.result()

    @contextmanager
    def _receiving(self, stop: threading.Event) -> Iterator[Mapping[str, Any]]:
        """Keep the receiver running until `stop`; yield where it listens."""
        if self.receiver is None:
            yield {}
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
            yield receiver.announced or {}
        finally:
            stop.set()
            stopper.join()

    def reload(self) -> None:
        """Have the receiver read tokens and certificates again; the parts have none."""
        if self.receiver is not None:
            self.receiver.reload()

    def metrics(self) -> bytes:
        """Return the metrics of this process and of the receiver, so that one scrape has all."""
        _, body = self._ask_receiver("/metrics")
        return self._registry.text() + body

    def trouble(self) -> str | None:
        """Say everything that keeps the service from being ready; None when it is."""
        troubles = [self._receiver_trouble(), *(part.trouble for part in self.parts)]
        return "; ".join(one for one in troubles if one is not None) or None

    def _receiver_trouble(self) -> str | None:
        if self.receiver is None:
            return None
        status, body = self._ask_receiver("/readyz")
        if status is None:
            return "the receiver is down"
        if status != HTTPStatus.OK:
            return f"the receiver takes nothing: {json.loads(body)['reason']}"
        return None

    def _ask_receiver(self, path: str) -> tuple[int | None, bytes]:
        announced = self.receiver.announced if self.receiver else None
        if announced is None:
            return None, b""
        address = parse_address(announced["observe"])
        connection = HTTPConnection(address.host, address.port, timeout=ASK_SECONDS)
        with closing(connection):
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
                return answer.status, answer.read()
            except (OSError, HTTPException):
                return None, b""
