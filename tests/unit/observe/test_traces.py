"""Spans: none without a receiver, and no values in those there are."""

import socket
import subprocess
import sys
import time

import pytest

from neve.config import Settings
from neve.errors import CatalogError
from neve.observe import traces
from tests.support.otlp_collector import attributes, running_collector


@pytest.fixture
def collector():
    with running_collector() as started:
        try:
            yield started
        finally:
            traces.stop()


def settings(url, **more):
    return Settings(project="shop", environment="test", observe={"otlp_endpoint": url}, **more)


def test_nothing_is_loaded_or_made_unless_it_is_configured():
    code = (
        "import sys; from neve.config import Settings; from neve.observe import traces\n"
        "traces.start(Settings())\n"
        "with traces.span('merge.reduce', table='a.b') as one: one.set(rows=1)\n"
        "assert traces.span('a') is traces.span('b')\n"
        "traces.stop()\n"
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "neve" in told.stdout.split()
    assert "opentelemetry" not in told.stdout.split()


def test_spans_are_nested_named_and_sent_at_the_end(collector, monkeypatch):
    monkeypatch.setenv("APP_VERSION", "7.1")
    # As people paste it; the path is the protocol's.
    traces.start(settings(f"{collector.url}/"))
    with traces.span("merge.table", table="shop.orders"), traces.span("merge.reduce") as step:
        step.set(rows=3, late=0)
    traces.stop()
    [(path, request)] = collector.requests
    assert path == "/v1/traces"
    resource = attributes(request.resource_spans[0].resource)
    assert resource["service.name"] == "shop"
    assert resource["service.version"] == "7.1"
    assert resource["deployment.environment.name"] == "test"
    outer, inner = collector.spans["merge.table"], collector.spans["merge.reduce"]
    assert inner.parent_span_id == outer.span_id
    assert attributes(outer) == {"neve.table": "shop.orders"}
    assert attributes(inner) == {"neve.rows": 3, "neve.late": 0}


def test_a_failure_has_its_code_and_not_what_it_says(collector):
    traces.start(settings(collector.url))
    for name, error in (("known", CatalogError("row 4711")), ("other", KeyError("row 4711"))):
        with pytest.raises(type(error)), traces.span(name):
            raise error
    traces.stop()
    assert attributes(collector.spans["known"]) == {"error.type": "catalog"}
    assert attributes(collector.spans["other"]) == {"error.type": "KeyError"}
    assert {span.status.code for span in collector.spans.values()} == {2}
    assert "4711" not in str(collector.requests)


def test_lost_spans_are_said_once_and_hold_nothing_up(collector, caplog):
    collector.status = 400
    traces.start(settings(collector.url))
    with traces.span("a"):
        pass
    traces.stop()
    traces.stop()
    assert [record.message for record in caplog.records if record.name.startswith("neve")] == [
        "observe.otlp_endpoint does not take spans: they are lost meanwhile"
    ]
    with traces.span("after the end"):
        pass


def test_a_receiver_that_comes_back_is_said_too(caplog):
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    from neve.observe.otlp import TellingExporter

    answers = [SpanExportResult(number) for number in (0, 1, 1, 0, 0)]

    class Flaky(SpanExporter):
        def export(self, spans):
            return answers.pop(0)

        def shutdown(self):
            pass

    exporter = TellingExporter(Flaky())
    for _ in range(5):
        exporter.export([])
    assert not answers
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "observe.otlp_endpoint does not take spans",
        "observe.otlp_endpoint takes spans again",
    ]


def test_a_receiver_that_does_not_answer_delays_the_end_once(monkeypatch):
    from neve.observe import otlp

    monkeypatch.setattr(otlp, "EXPORT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        traces.start(settings(f"http://127.0.0.1:{silent.getsockname()[1]}"))
        # As many as make four requests.
        for _ in range(2000):
            with traces.span("a"):
                pass
        began = time.monotonic()
        traces.stop()
        assert time.monotonic() - began < 1.5
