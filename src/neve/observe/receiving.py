"""The metrics of the receiver, in its own process; see `neve.observe.metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric

from neve.observe.durations import Durations
from neve.observe.metrics import Reading

# What a receiver counts, by which labels, and what that is.
_COUNTERS = MappingProxyType(
    {
        "accepted_requests": (("signal", "sender"), "Requests stored"),
        "accepted_records": (("signal", "sender"), "Records of the requests stored"),
        "accepted_bytes": (("signal", "sender"), "Bytes of the requests stored, decompressed"),
        "duplicate_requests": (("signal", "sender"), "Requests sent again, and stored once"),
        "duplicate_records": (("signal", "sender"), "Records of the requests sent again"),
        "refused_requests": (("reason",), "Requests answered with an error"),
        "invalid_texts": (("signal",), "Texts that were not UTF-8, stored with U+FFFD"),
        "unknown_fields": (("signal",), "Fields with content that this version does not know"),
    }
)


@dataclass(frozen=True, slots=True)
class ReceiverNumbers:
    """What a receiver says about itself."""

    # By the names above, then by label values.
    totals: Mapping[str, Mapping[tuple[str, ...], int]]
    acknowledgements: Durations
    in_flight_bytes: int
    # By protocol.
    connections: Mapping[str, int]
    buffered_bytes: int
    # What commits waited for the disk or the object store, by signal.
    fsyncs: Mapping[str, Durations]
    # Requests that the dedup window had no room for, by signal.
    forgotten: Mapping[str, int]


def receiving(read_numbers: Callable[[], ReceiverNumbers]) -> Reading:
    """Return a receiver's metrics, read when somebody asks."""

    def read() -> Iterator[Metric]:
        numbers = read_numbers()
        for name, counts in numbers.totals.items():
            labels, text = _COUNTERS[name]
            family = CounterMetricFamily(f"neve_receive_{name}", text, labels=labels)
            for values, count in counts.items():
                family.add_metric(values, count)
            yield family
        acknowledgements = numbers.acknowledgements
        yield HistogramMetricFamily(
            "neve_receive_acknowledgement_seconds",
            "From a request's last byte to the answer that it is stored",
            acknowledgements.buckets,
            acknowledgements.sum_seconds,
        )
        yield GaugeMetricFamily(
            "neve_receive_in_flight_bytes", "Requests in progress", numbers.in_flight_bytes
        )
        connections = GaugeMetricFamily(
            "neve_receive_connections", "Connections open", labels=["protocol"]
        )
        for protocol, count in numbers.connections.items():
            connections.add_metric([protocol], count)
        yield connections
        yield GaugeMetricFamily(
            "neve_buffer_bytes", "About what is buffered", numbers.buffered_bytes
        )
        fsyncs = HistogramMetricFamily(
            "neve_buffer_fsync_seconds",
            "What commits waited for: a disk's fdatasync, an object store's put",
            labels=["signal"],
        )
        for signal, durations in numbers.fsyncs.items():
            fsyncs.add_metric([signal], durations.buckets, durations.sum_seconds)
        yield fsyncs
        forgotten = CounterMetricFamily(
            "neve_receive_forgotten_requests",
            "Requests forgotten before dedup_seconds were over, as there were too many",
            labels=["signal"],
        )
        for signal, count in numbers.forgotten.items():
            forgotten.add_metric([signal], count)
        yield forgotten

    return Reading(read)
