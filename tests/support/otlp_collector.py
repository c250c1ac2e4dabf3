"""A receiver of what Neve sends about itself over OTLP/HTTP."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from neve.signals import Signal


class Collector:
    """Keeps every request, by its path; refuses them while `status` says so."""

    def __init__(self):
        self.status = 200
        self.requests = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = gzip.decompress(self.rfile.read(int(self.headers["content-length"])))
                message = Signal(self.path.removeprefix("/v1/")).request
                collector.requests.append((self.path, message.FromString(body)))
                self.send_response(collector.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    @property
    def spans(self):
        return {
            span.name: span
            for _, request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        }

    @property
    def points(self):
        """The data points of the last request, by the metric's name."""
        _, request = self.requests[-1]
        return {
            metric.name: list(getattr(metric, metric.WhichOneof("data")).data_points)
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@contextmanager
def running_collector() -> Iterator[Collector]:
    collector = Collector()
    thread = threading.Thread(target=collector.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        collector.server.shutdown()
        collector.server.server_close()
        thread.join()


def attributes(item):
    """Return the attributes of a span, a resource or a data point."""
    return {
        attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value"))
        for attribute in item.attributes
    }
