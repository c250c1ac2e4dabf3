"""Neve's spans sent to Neve: `neve serve` is an OTLP receiver like any other."""

from neve.config import Settings
from neve.observe import traces
from tests.support.buffered import buffered_rows
from tests.support.command import neve_serve
from tests.support.wait import until


def test_spans_of_our_own_work_arrive_in_the_buffer_of_a_receiver(tmp_path, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20t0ken-of-the-test")
    with neve_serve(tmp_path, {"receive": {"tokens": ["t0ken-of-the-test"]}}) as serving:
        settings = Settings(project="shop", observe={"otlp_endpoint": f"http://{serving.http}"})
        traces.start(settings)
        try:
            with (
                traces.span("merge.table", table="shop.orders"),
                traces.span("merge.reduce") as step,
            ):
                step.set(rows=3)
        finally:
            traces.stop()

        def rows():
            return {row["name"]: row for row in buffered_rows(serving.buffer, "shop")["traces"]}

        until(lambda: len(rows()) == 2)
        outer, inner = rows()["merge.table"], rows()["merge.reduce"]
        assert serving.process.stop() == 0
    assert inner["parent_span_id"] == outer["span_id"]
    assert outer["attributes"]["neve.table"] == "shop.orders"
    assert inner["attributes"]["neve.rows"] == "3"
