"""The service: consolidation in this process, and the receiver as a child if it is asked for.

It ends by a signal and nothing else. What fails is tried again; while it fails, the buffer keeps
what was acknowledged, and `/readyz` and the metrics say so.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Any

from neve.config.address import parse_address
from neve.consolidate.apply import Consolidator, Report, SparkRunner
from neve.consolidate.spec import consolidate_spec
from neve.consolidate.watch import look, watch
from neve.errors import NeveError
from neve.observe.http import Pages, serving
from neve.observe.metrics import ConsolidationMetrics, Registry, common_labels, supervision
from neve.service.consolidation import Recorder
from neve.service.stopping import stopping_on_signals
from neve.service.supervise import Supervisor

if TYPE_CHECKING:
    from neve.lake import Lake

logger = logging.getLogger(__name__)

ASK_SECONDS = 5.0
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


class Service:
    """Everything that runs together in one deployment on one machine."""

    def __init__(
        self, lake: Lake, on_report: Callable[[Report], None], receiver: Supervisor | None = None
    ) -> None:
        settings = lake.settings
        self.receiver = receiver
        self.registry = Registry(common_labels(settings))
        self.worker = Consolidator(lake, consolidate_spec(settings), SparkRunner(lake))
        self.recorder = Recorder(
            ConsolidationMetrics(self.registry), settings.telemetry.namespace, on_report
        )
        if receiver is not None:
            self.registry.register(supervision(lambda: receiver.is_up, lambda: receiver.restarts))
        self._http = settings.observe.http

    def run(self, on_ready: Callable[[Started], None]) -> None:
        """Run until SIGTERM or SIGINT, then stop the receiver and finish the batch in progress.

        Raises:
            ConfigError: an address cannot be listened on, or the receiver refuses to start.
        """
        with (
            stopping_on_signals() as stop,
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
                self._prepare()
                watch(self.worker, stop, self.recorder)
            self._finish()

    def _prepare(self) -> None:
        """Start Spark before the first data comes; if that fails, the first batch tries again."""
        try:
            self.worker.prepare()
        except NeveError as error:
            logger.warning("Spark is not ready yet: %s", error)

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

    def _finish(self) -> None:
        """Consolidate what the receiver has sealed at its end, if that is little.

        Anything more, and anything while consolidation fails, waits in the buffer for the next
        start: nothing is lost, and stopping stays quick.
        """
        waiting = sum(stream.bytes for stream in self.worker.reader.streams())
        if self.recorder.trouble is None and 0 < waiting <= self.worker.spec.trigger_bytes:
            look(self.worker, threading.Event(), self.recorder, at_once=True)

    def metrics(self) -> bytes:
        """Return the metrics of this process and of the receiver, so that one scrape has all."""
        _, body = self._ask_receiver("/metrics")
        return self.registry.text() + body

    def trouble(self) -> str | None:
        """Say why the service is not ready; None when it is."""
        if self.receiver is not None:
            status, body = self._ask_receiver("/readyz")
            if status is None:
                return "the receiver is down"
            if status != HTTPStatus.OK:
                return f"the receiver takes nothing: {json.loads(body)['reason']}"
        if self.recorder.trouble is not None:
            return f"consolidation failed: {self.recorder.trouble}"
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
