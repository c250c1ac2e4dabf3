"""What direct writes count, as OpenTelemetry's metrics."""

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from neve.observe.commits import CommitMeasured
from neve.observe.direct_metrics import DirectMetrics
from neve.signals import Signal
from tests.support.otlp_bodies import protobuf
from tests.support.otlp_collector import attributes, running_collector

STATUS = {"promote": [{"attribute": "http.status", "type": "int"}]}
FAILED = CommitMeasured(
    "otel.logs",
    attempts=3,
    conflicts=1,
    unknown_outcomes=2,
    seconds=0.5,
    manifests=4,
    files=1,
    rows=7,
    bytes=100,
    committed=False,
)


def odd_request():
    """A log with a value that does not fit, a key sent twice, and a log that no table can hold."""
    request = Signal.LOGS.request()
    records = request.resource_logs.add().scope_logs.add().log_records
    record = records.add()
    for _ in range(2):
        record.attributes.add(key="http.status").value.string_value = "teapot"
    records.add(time_unix_nano=2**63)
    return request.SerializeToString()


def test_commits_and_requests_are_sent_to_the_configured_receiver(open_writer):
    with running_collector() as collector:
        writer = open_writer(telemetry=STATUS, observe={"otlp_endpoint": collector.url})
        writer.write_request("logs", odd_request())
        writer.write_request("logs", protobuf(Signal.LOGS, records=3))
        writer.close()
        assert [path for path, _ in collector.requests] == ["/v1/metrics"]
        points = collector.points

    def counted(name):
        (point,) = [point for point in points[f"neve.direct.{name}"] if point.as_int]
        return point.as_int

    names = ("commits", "commit.attempts", "files", "rows", "rejected_records")
    assert [counted(name) for name in names] == [2, 2, 2, 4, 1]
    assert [counted(name) for name in ("duplicate_keys", "unfit_values", "requests")] == [1, 1, 2]
    assert counted("bytes") > 1_000
    (seconds,) = points["neve.direct.commit.duration"]
    assert seconds.count == 2
    assert max(seconds.explicit_bounds) == 60
    assert attributes(seconds) == {"neve.table": "otel.logs", "neve.committed": True}


def test_a_commit_that_failed_counts_its_attempts_and_no_rows():
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    DirectMetrics(provider.get_meter("test")).count_commit(FAILED)
    (resource,) = reader.get_metrics_data().resource_metrics
    provider.shutdown()
    counted = {
        metric.name.removeprefix("neve.direct."): metric.data.data_points[0]
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.data.data_points
    }
    assert counted["commit.attempts"].value == 3
    assert counted["commit.conflicts"].value == 1
    assert counted["commit.unknown_outcomes"].value == 2
    assert counted["manifests"].value == 4
    assert counted["commits"].attributes == {"neve.table": "otel.logs", "neve.committed": False}
    assert "rows" not in counted
