"""The metrics as Prometheus reads them."""

import time

from prometheus_client.parser import text_string_to_metric_families

import neve
from neve.config import Settings
from neve.observe.merging import IndexMetrics
from neve.observe.metrics import (
    ConsolidationMetrics,
    Registry,
    common_labels,
    receiving,
    supervision,
)
from neve.receive.counters import Counters
from neve.service.receiving import counts

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
    counters = Counters()
    registry.register(receiving(lambda: counts(counters), lambda: 4096))
    counters.accepted_records["logs"] += 5
    counters.refused_requests["malformed"] += 1
    counters.duplicate_requests["traces"] += 2
    found = samples(registry)
    assert found["neve_receive_accepted_records_total", "logs"].value == 5
    assert found["neve_receive_refused_requests_total", "malformed"].value == 1
    assert found["neve_receive_duplicate_requests_total", "traces"].value == 2
    assert found["neve_buffer_bytes",].value == 4096


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
