"""OTLP requests with something in them."""

from __future__ import annotations

import http.client
from contextlib import closing

from google.protobuf import json_format

from neve.signals import Signal


def message(signal: Signal, name: str = "one", records: int = 1):
    """Build a request of `records` records, told apart by their name."""
    request = signal.request()
    if signal is Signal.LOGS:
        scope = request.resource_logs.add().scope_logs.add()
        for n in range(records):
            scope.log_records.add().body.string_value = f"{name} {n}"
    elif signal is Signal.TRACES:
        scope = request.resource_spans.add().scope_spans.add()
        for n in range(records):
            scope.spans.add(name=f"{name} {n}", trace_id=b"t" * 16, span_id=b"s" * 8)
    else:
        scope = request.resource_metrics.add().scope_metrics.add()
        for n in range(records):
            point = scope.metrics.add(name=f"{name} {n}").gauge.data_points.add()
            point.as_double = n
    return request


def protobuf(signal: Signal, name: str = "one", records: int = 1) -> bytes:
    """Return such a request in protobuf."""
    return message(signal, name, records).SerializeToString(deterministic=True)


def as_json(signal: Signal, name: str = "one", records: int = 1) -> bytes:
    """Return such a request in JSON, without ids, which OTLP writes in a way of its own."""
    request = message(signal, name, records)
    for resource in getattr(request, "resource_spans", ()):
        for scope in resource.scope_spans:
            for span in scope.spans:
                span.ClearField("trace_id")
                span.ClearField("span_id")
    return json_format.MessageToJson(request).encode()


def send(address: str, signal: Signal, body: bytes) -> None:
    """Post a protobuf request to `host:port`, which must acknowledge it."""
    with closing(http.client.HTTPConnection(address, timeout=30)) as connection:
        headers = {"content-type": "application/x-protobuf"}
        connection.request("POST", signal.http_path, body, headers)
        assert connection.getresponse().status == 200
