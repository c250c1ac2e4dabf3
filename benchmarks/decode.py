"""How fast requests become tables, against a loop over message objects.

    python -m benchmarks.decode [signal …]

One core, fixed data. Prints a JSON line a measurement; `ratio` is our rate over the loop's.
"""

from __future__ import annotations

import json
import sys
import time
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE

from neve.signals import Signal
from neve.telemetry.decode import Decoded, decode
from tests.support import otlp_oracle

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message

SEED = 4
REQUESTS = 40
RECORDS = 1000
# The loop takes its time; a few requests are enough to know its rate.
LOOP_REQUESTS = 4
ROUNDS = 5
NOW = 1_700_000_000_000_000_000
WANTED = {Signal.TRACES: 250_000}
WANTED_RATIO = 2.5


def attribute(rng: Random, attributes: Any, key: str, kind: str) -> None:
    value = attributes.add(key=key).value
    if kind == "int":
        value.int_value = rng.randrange(1 << 20)
    elif kind == "double":
        value.double_value = rng.random()
    elif kind == "bool":
        value.bool_value = rng.random() < 0.5
    else:
        value.string_value = f"{kind}-{rng.randrange(1000)}"


def describe(rng: Random, part: Any) -> None:
    """A resource and a scope as a service in Kubernetes has them."""
    for key in ("service.name", "service.namespace", "service.instance.id", "host.name"):
        attribute(rng, part.resource.attributes, key, "checkout")
    for key in ("k8s.pod.name", "k8s.node.name", "deployment.environment.name"):
        attribute(rng, part.resource.attributes, key, "prod")
    part.schema_url = "https://opentelemetry.io/schemas/1.37.0"


def record_attributes(rng: Random, attributes: Any) -> None:
    attribute(rng, attributes, "http.route", "/api/v1/items")
    attribute(rng, attributes, "http.request.method", "GET")
    attribute(rng, attributes, "server.address", "shop.example")
    attribute(rng, attributes, "http.response.status_code", "int")
    attribute(rng, attributes, "request.sampled", "bool")


def traces(rng: Random) -> Message:
    request: Any = Signal.TRACES.request()
    part = request.resource_spans.add()
    describe(rng, part)
    scope = part.scope_spans.add()
    scope.scope.name = "http.server"
    for position in range(RECORDS):
        span = scope.spans.add(
            trace_id=rng.randbytes(16),
            span_id=rng.randbytes(8),
            parent_span_id=rng.randbytes(8),
            name="GET /api/v1/items",
            kind=2,
            start_time_unix_nano=NOW + position,
            end_time_unix_nano=NOW + position + rng.randrange(10**9),
        )
        record_attributes(rng, span.attributes)
        if position % 10 == 0:
            event = span.events.add(time_unix_nano=NOW + position, name="exception")
            attribute(rng, event.attributes, "exception.type", "ValueError")
        if position % 20 == 0:
            span.links.add(trace_id=rng.randbytes(16), span_id=rng.randbytes(8))
    return request


def logs(rng: Random) -> Message:
    request: Any = Signal.LOGS.request()
    part = request.resource_logs.add()
    describe(rng, part)
    scope = part.scope_logs.add()
    scope.scope.name = "app.logger"
    for position in range(RECORDS):
        log = scope.log_records.add(
            time_unix_nano=NOW + position,
            observed_time_unix_nano=NOW + position + 1000,
            severity_number=9,
            severity_text="INFO",
            trace_id=rng.randbytes(16),
            span_id=rng.randbytes(8),
        )
        log.body.string_value = f"GET /api/v1/items/{position} in {rng.randrange(1000)} ms"
        record_attributes(rng, log.attributes)
    return request


def metrics(rng: Random) -> Message:
    request: Any = Signal.METRICS.request()
    part = request.resource_metrics.add()
    describe(rng, part)
    scope = part.scope_metrics.add()
    scope.scope.name = "runtime"
    for position in range(0, RECORDS, 10):
        metric = scope.metrics.add(name=f"metric.{position}", unit="ms", description="How long.")
        kind = ("sum", "gauge", "histogram")[position // 10 % 3]
        data = getattr(metric, kind)
        if kind != "gauge":
            data.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
        for _ in range(10):
            point = data.data_points.add(start_time_unix_nano=NOW, time_unix_nano=NOW + position)
            record_attributes(rng, point.attributes)
            if kind == "histogram":
                point.count, point.sum = 10, rng.random()
                point.bucket_counts.extend([1] * 10)
                point.explicit_bounds.extend([float(bound) for bound in range(9)])
            else:
                point.as_double = rng.random()
    return request


BUILDERS = {Signal.TRACES: traces, Signal.LOGS: logs, Signal.METRICS: metrics}
UNITS = {Signal.TRACES: "spans/s", Signal.LOGS: "records/s", Signal.METRICS: "points/s"}


def seconds(work: Callable[[], object]) -> float:
    """The best of some rounds, in seconds of this process on its one thread."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def measure(signal: Signal) -> None:
    rng = Random(SEED)
    requests = [BUILDERS[signal](rng).SerializeToString() for _ in range(REQUESTS)]
    payloads = pa.array(requests, pa.binary())
    received = list(range(REQUESTS))
    received_unix_nano = pa.array([micros * 1000 for micros in received], pa.int64())

    senders = pa.array(["shop"] * REQUESTS, pa.string())

    def decode_all() -> list[Decoded]:
        return list(decode(signal, payloads, received_unix_nano, senders))

    ours = REQUESTS * RECORDS / seconds(decode_all)
    some, some_received = requests[:LOOP_REQUESTS], received[:LOOP_REQUESTS]
    loop = (
        LOOP_REQUESTS
        * RECORDS
        / seconds(lambda: otlp_oracle.decode(signal, some, some_received).arrow())
    )
    name = f"decode {signal.value} to Arrow"
    wanted = f">= {WANTED_RATIO} times the loop"
    if signal in WANTED:
        wanted += f", >= {WANTED[signal]} {UNITS[signal]}"
    line = {
        "name": name,
        "value": round(ours),
        "unit": UNITS[signal],
        "ratio": round(ours / loop, 2),
        "wanted": wanted,
    }
    print(json.dumps(line))


if __name__ == "__main__":
    pa.set_cpu_count(1)
    for chosen in sys.argv[1:] or [signal.value for signal in BUILDERS]:
        measure(Signal(chosen))
