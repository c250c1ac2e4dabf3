"""The metrics as Prometheus reads them."""

import time

from prometheus_client.parser import text_string_to_metric_families

import neve
from neve.config import Settings
from neve.observe.durations import DurationHistogram
from neve.observe.merging import IndexMetrics
from neve.observe.metrics import (
    ConsolidationMetrics,
    Registry,
    common_labels,
    supervision,
)
from neve.observe.receiving import receiving
from neve.receive.request_handler import RequestHandler
from neve.receive.spec import ReceiveSpec
from neve.service.receiving import receiver_numbers
from tests.support.sinks import ListSink

LABELS = {"project": "p", "environment": "e", "version": "v"}


def samples(registry):
    """Return the samples of a registry by name and the labels that are their own."""
    return {
        (one.name, *(value for key, value in sorted(one.labels.items()) if key not in LABELS)): one
        for family in text_string_to_metric_families(registry.text().decode())
        for one in family.samples
    }


def test_every_sample_has_the_labels_of_the_deployment():
    registry = Registry(LABELS)
    ConsolidationMetrics(registry).batches.labels("otel.logs", "published").inc()
    found = samples(registry)
    assert found["neve_consolidate_batches_total", "published", "otel.logs"].value == 1
    assert all(LABELS.items() <= one.labels.items() for one in found.values())
    assert not any(name.endswith("_created") for name, *_ in found)


def test_version_is_that_of_the_application_if_it_has_one(monkeypatch):
    monkeypatch.delenv("APP_VERSION", raising=False)
    settings = Settings(project="shop", environment="prod")
    assert common_labels(settings) == {
        "project": "shop",
        "environment": "prod",
        "version": neve.__version__,
    }
    monkeypatch.setenv("APP_VERSION", "7.1")
    assert common_labels(settings)["version"] == "7.1"


def test_the_age_of_the_oldest_request_grows_without_another_look():
    registry = Registry(LABELS)
    metrics = ConsolidationMetrics(registry)
    name = ("neve_consolidate_oldest_age_seconds",)
    assert samples(registry)[name].value == 0
    metrics.set_waiting(100, time.time_ns() - 3600 * 10**9)
    first = samples(registry)[name].value
    assert 3600 <= first < 3700
    assert samples(registry)[name].value > first
    metrics.set_waiting(0, None)
    assert samples(registry)[name].value == 0


def test_a_receiver_is_read_when_it_is_asked():
    registry = Registry(LABELS)
    sink = ListSink()
    handler = RequestHandler(ReceiveSpec(), sink)
    registry.register(receiving(lambda: receiver_numbers(handler)))
    counters = handler.counters
    counters.accept("logs", "shop", records=5, size=1000)
    counters.accept("logs", "shop", records=2, size=10)
    counters.drop_duplicate("traces", "", records=7)
    counters.refuse("malformed")
    counters.repair("logs", invalid_texts=4, unknown_fields=0)
    counters.repair("metrics", invalid_texts=0, unknown_fields=6)
    counters.acknowledge(0.003)
    counters.connect("http")
    counters.connect("http")
    counters.disconnect("http")
    handler.budget.take(512)
    sink.used_bytes = 4096
    sink.fsyncs["logs"] = DurationHistogram()
    sink.fsyncs["logs"].observe(0.02)
    sink.forgotten["logs"] = 8

    found = samples(registry)
    values = {name: sample.value for name, sample in found.items()}
    assert values["neve_receive_accepted_requests_total", "shop", "logs"] == 2
    assert values["neve_receive_accepted_records_total", "shop", "logs"] == 7
    assert values["neve_receive_accepted_bytes_total", "shop", "logs"] == 1010
    assert values["neve_receive_duplicate_requests_total", "", "traces"] == 1
    assert values["neve_receive_duplicate_records_total", "", "traces"] == 7
    assert values["neve_receive_refused_requests_total", "malformed"] == 1
    assert values["neve_receive_invalid_texts_total", "logs"] == 4
    assert ("neve_receive_invalid_texts_total", "metrics") not in values
    assert values["neve_receive_unknown_fields_total", "metrics"] == 6
    assert values["neve_receive_forgotten_requests_total", "logs"] == 8
    assert values["neve_receive_acknowledgement_seconds_bucket", "0.0025"] == 0
    assert values["neve_receive_acknowledgement_seconds_bucket", "0.005"] == 1
    assert values["neve_receive_acknowledgement_seconds_count",] == 1
    assert values["neve_receive_connections", "http"] == 1
    assert values["neve_receive_in_flight_bytes",] == 512
    assert values["neve_buffer_bytes",] == 4096
    assert values["neve_buffer_fsync_seconds_bucket", "0.025", "logs"] == 1
    assert values["neve_buffer_fsync_seconds_sum", "logs"] == 0.02


def test_supervision_says_whether_the_receiver_is_up():
    registry = Registry(LABELS)
    registry.register(supervision(lambda: False, lambda: 3))
    found = samples(registry)
    assert found["neve_receive_up",].value == 0
    assert found["neve_receive_restarts_total",].value == 3


def test_the_index_has_its_metrics_by_table():
    registry = Registry(LABELS)
    index = IndexMetrics(registry)
    index.bytes.labels("shop.orders").set(4096)
    index.hits.labels("shop.orders").inc(3)
    found = samples(registry)
    assert found["merger_index_bytes", "shop.orders"].value == 4096
    assert found["merger_index_hits_total", "shop.orders"].value == 3
