"""The installed receiver and the clients of the field: what they sent is buffered, once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from neve.signals import Signal
from tests.support.buffered import buffered_rows
from tests.support.certificates import make_certificates
from tests.support.collector import running_collector
from tests.support.command import NEVE, neve_serve
from tests.support.install import CURL, TELEMETRYGEN
from tests.support.otlp_bodies import protobuf, send
from tests.support.wait import until

EXAMPLES = Path(__file__).parent / "otlp"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """One receiver for all clients; each names itself as a service."""
    with neve_serve(tmp_path_factory.mktemp("served")) as serving:
        yield serving
        assert serving.process.stop() == 0


def rows_of(serving, service, counts):
    """Return the rows of a service by table, once there are as many; never more."""
    rows = {}

    def complete():
        rows.update(buffered_rows(serving.buffer, service))
        return {name: len(found) for name, found in rows.items() if found} == counts

    until(complete, seconds=30)
    return rows


def test_it_starts_in_two_seconds_and_without_spark(tmp_path):
    with neve_serve(tmp_path, PYTHONPROFILEIMPORTTIME="1") as serving:
        stat = Path(f"/proc/{serving.process.pid}/stat").read_text().rpartition(")")[2].split()
        imported = serving.process.log.read_text()
    # Of the processor, not of the clock: the machine may be busy with other tests.
    assert (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK") < 2
    assert " neve.receive.server" in imported
    for heavy in ("pyspark", "py4j", "pyiceberg"):
        assert heavy not in imported


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_telemetrygen(served, protocol):
    service = f"telemetrygen over {protocol}"
    address = served.http if protocol == "http" else served.grpc
    metrics = ("--metrics", "50", "--metric-type")
    for kind, *options in (
        ("logs", "--logs", "250", "--severity-text", "Warn", "--severity-number", "13"),
        ("traces", "--traces", "120", "--child-spans", "2", "--status-code", "Error"),
        ("metrics", *metrics, "Gauge"),
        ("metrics", *metrics, "Sum"),
        ("metrics", *metrics, "Histogram"),
        ("metrics", *metrics, "ExponentialHistogram"),
    ):
        where = ("--otlp-insecure", "--otlp-endpoint", address, f"--otlp-http={protocol == 'http'}")
        command = [TELEMETRYGEN.directory / "telemetrygen", kind, *where, "--rate", "0", *options]
        subprocess.run([*command, "--service", service], check=True, capture_output=True)
    counts = {"logs": 250, "traces": 360}
    counts |= {
        f"metrics_{kind}": 50 for kind in ("gauge", "sum", "histogram", "exponential_histogram")
    }
    rows = rows_of(served, service, counts)
    assert {row["severity_text"] for row in rows["logs"]} == {"Warn"}
    assert {row["status_code"] for row in rows["traces"]} == {"error"}
    assert len({row["span_id"] for row in rows["traces"]}) == 360
    assert len({row["trace_id"] for row in rows["traces"]}) == 120
    assert {row["aggregation_temporality"] for row in rows["metrics_sum"]} == {"cumulative"}


def test_telemetrygen_over_grpc_with_a_token_and_mutual_tls(tmp_path):
    made = make_certificates(tmp_path)
    tls = {
        "cert": str(made.server_cert),
        "key": str(made.server_key),
        "client_ca": str(made.ca_cert),
    }
    token = "a-token-of-some-length"
    with neve_serve(tmp_path, {"receive": {"tls": tls, "tokens": [token]}}) as serving:
        endpoint = serving.grpc.replace("127.0.0.1", "localhost")
        where = ("--otlp-endpoint", endpoint, "--ca-cert", made.ca_cert, "--mtls")
        client = ("--client-cert", made.client_cert, "--client-key", made.client_key)
        command = [TELEMETRYGEN.directory / "telemetrygen", "logs", *where, *client, "--logs", "20"]
        options = ("--rate", "0", "--service", "mutual", "--otlp-header")
        for header in ("wrong", token):
            authorization = f'authorization="Bearer {header}"'
            subprocess.run([*command, *options, authorization], check=False, capture_output=True)
        rows_of(serving, "mutual", {"logs": 20})
        assert serving.process.stop() == 0


def test_curl_with_json(served):
    options = ("--silent", "--show-error", "--fail-with-body", "-H")
    for kind in Signal:
        sent = ("Content-Type: application/json", "-d", f"@{EXAMPLES / kind.value}.json")
        command = [CURL.path(), *options, *sent, f"http://{served.http}{kind.http_path}"]
        answer = subprocess.run(command, check=True, capture_output=True)
        warning = json.loads(answer.stdout).get("partialSuccess", {})
        # The example has a field of a later version, of which its sender is told.
        expected = "LogRecord.fieldOfALaterVersion" if kind is Signal.LOGS else ""
        assert expected in warning.get("errorMessage", "")
        assert bool(warning) is bool(expected)
    names = ("gauge", "sum", "histogram", "exponential_histogram", "summary")
    counts = {"logs": 2, "traces": 1, **{f"metrics_{name}": 1 for name in names}}
    rows = rows_of(served, "curl", counts)
    assert_logs(*rows["logs"])
    [span] = rows["traces"]
    assert (span["name"], span["kind"], span["duration_nano"]) == (
        "ride to the glacier",
        "server",
        250_000,
    )
    assert (span["status_code"], span["status_message"]) == ("error", "wind")
    assert [event["name"] for event in span["events"]] == ["mid station"]
    assert_points(*(rows[f"metrics_{name}"][0] for name in names))


def assert_logs(text, structured):
    assert (text["trace_id"], text["span_id"]) == (
        "5b8efff798038103d269b633813fc60c",
        "eee19b7ec3c1b174",
    )
    assert text["resource_attributes"] == {"service.name": "curl", "host.cores": "8"}
    assert text["attributes"] == {"slope.degrees": "37.5", "stations": '["top",2]'}
    assert (text["severity_number"], text["observed_time_unix_nano"]) == (
        13,
        1_794_700_800_000_000_002,
    )
    assert json.loads(structured["body"]) == {"depth": 240}


def assert_points(gauge, total, histogram, exponential, summary):
    assert gauge["value"] == 241.5
    assert (total["value_int"], total["is_monotonic"]) == (9_007_199_254_740_993, True)
    assert (histogram["bucket_counts"], histogram["explicit_bounds"]) == ([1, 2], [10.0])
    assert histogram["aggregation_temporality"] == "delta"
    assert (exponential["positive_offset"], exponential["positive_bucket_counts"]) == (3, [1, 2])
    assert [pair["value"] for pair in summary["quantiles"]] == [1.0, 2.0]


def test_buffer_status_shows_the_streams(served):
    for kind in Signal:
        send(served.http, kind, protobuf(kind, "status"))
    command = [NEVE, "-c", served.config, "buffer", "status", "--json"]
    shown = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    streams = {row["stream"].partition("/")[0]: row for row in shown}
    assert set(streams) == {kind.value for kind in Signal}
    for row in streams.values():
        assert row["state"] == "open"
        assert row["bytes"] + row["open_bytes"] > 0
        assert row["missing"] is None


QUICK_RETRY = {"initial_interval": "50ms", "max_interval": "200ms", "max_elapsed_time": "0s"}


@pytest.mark.parametrize("exporter", ["otlp_grpc", "otlp_http"])
def test_a_collector_retries_while_the_receiver_is_killed(tmp_path, exporter):
    sent = Counter()
    # The first dies with a request stored and not yet answered, which is then sent again.
    with neve_serve(tmp_path, NEVE_FAILPOINT="receive.durable@6") as first:
        endpoint = first.grpc if exporter == "otlp_grpc" else f"http://{first.http}"
        target = {
            "endpoint": endpoint,
            "compression": "gzip",
            "tls": {"insecure": True},
            "retry_on_failure": QUICK_RETRY,
        }
        pipeline = {"receivers": ["otlp"], "exporters": [exporter]}
        config = {
            "exporters": {exporter: target},
            "service": {"pipelines": {kind.value: pipeline for kind in Signal}},
        }
        with running_collector(tmp_path, config) as port:
            send_numbered(port, "first", sent)
            assert first.process.wait() == -signal.SIGKILL
            send_numbered(port, "down", sent)
            with neve_serve(tmp_path, at=first) as second:
                until(lambda: "logs down 0 0" in found_names(second.buffer), seconds=30)
                second.process.kill()
            send_numbered(port, "killed", sent)
            with neve_serve(tmp_path, at=first) as third:
                until(lambda: found_names(third.buffer) >= sent, seconds=30)
                assert third.process.stop() == 0
    assert found_names(first.buffer) == sent


def send_numbered(port, part, sent):
    """Send ten requests of each signal to the Collector, whose OK is a promise to deliver them."""
    for kind in Signal:
        for number in range(10):
            name = f"{kind.value} {part} {number}"
            send(f"127.0.0.1:{port}", kind, protobuf(kind, name, records=5))
            sent.update(f"{name} {record}" for record in range(5))


def found_names(location):
    """Count the records of all tables by what tells them apart."""
    column = {"logs": "body", "traces": "name", "metrics_gauge": "metric_name"}
    rows = buffered_rows(location)
    return Counter(row[name] for table, name in column.items() for row in rows[table])
