"""What docs/sending-telemetry.md tells people to copy, done: only addresses and files are ours."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from neve.config import Settings
from neve.signals import Signal
from tests.support.buffered import buffered_rows
from tests.support.certificates import make_certificates
from tests.support.collector import running_collector
from tests.support.command import neve_serve
from tests.support.otlp_bodies import protobuf, send
from tests.support.wait import until

PAGE = Path(__file__).parents[2] / "docs" / "sending-telemetry.md"
SECTIONS = dict(re.findall(r"^##+ (.+)\n((?:(?!^##).*\n)*)", PAGE.read_text(), re.MULTILINE))
TOKEN = {"OTLP_TOKEN": "quite-secret-and-long"}


def blocks(section, language):
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


def collector_example(name):
    """Return a section's Collector configuration, and Neve's where it asks for one."""
    examples = [yaml.safe_load(block) for block in blocks(SECTIONS[name], "yaml")]
    [collector] = [example for example in examples if "exporters" in example]
    [neve] = [example for example in examples if set(example) <= set(Settings.model_fields)] or [{}]
    return collector, neve


def with_our_places(document, places):
    text = yaml.safe_dump(document)
    for documented, ours in places.items():
        text = text.replace(documented, str(ours))
    return yaml.safe_load(text)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files that the page names."""
    directory = tmp_path_factory.mktemp("files")
    made = make_certificates(directory)
    return {
        "/etc/neve/server.pem": made.server_cert,
        "/etc/neve/server.key": made.server_key,
        "/etc/neve/ca.pem": made.ca_cert,
        "/etc/otelcol/ca.pem": made.ca_cert,
        "/etc/otelcol/client.pem": made.client_cert,
        "/etc/otelcol/client.key": made.client_key,
        "/var/lib/otelcol": directory / "queue",
    }


COLLECTOR_SECTIONS = [
    name
    for name, section in SECTIONS.items()
    if any("exporters" in block for block in blocks(section, "yaml"))
]


def test_the_page_has_collector_examples():
    assert len(COLLECTOR_SECTIONS) == 5


@pytest.mark.parametrize("name", COLLECTOR_SECTIONS)
def test_collector_configuration(tmp_path, files, name):
    smallest, _ = collector_example("gRPC")
    collector, neve = collector_example(name)
    with neve_serve(tmp_path, with_our_places(neve, files), **TOKEN) as serving:
        places = files | {
            f"{host}:{port}": address.replace("127.0.0.1", ours)
            for port, address in (("4318", serving.http), ("4317", serving.grpc))
            for host, ours in (("127.0.0.1", "127.0.0.1"), ("neve.example.com", "localhost"))
        }
        [exporter] = collector["exporters"]
        pipelines = {
            kind: pipeline | {"exporters": [exporter]}
            for kind, pipeline in smallest["service"]["pipelines"].items()
        }
        service = {**collector.get("service", {}), "pipelines": pipelines}
        config = with_our_places({**smallest, **collector, "service": service}, places)
        with running_collector(tmp_path, config, **TOKEN) as port:
            for kind in Signal:
                send(f"127.0.0.1:{port}", kind, protobuf(kind, name, records=3))
            until(lambda: counts(serving.buffer) == {"logs": 3, "traces": 3, "metrics_gauge": 3})


def counts(location):
    return {table: len(rows) for table, rows in buffered_rows(location).items() if rows}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with neve_serve(tmp_path_factory.mktemp("served")) as serving:
        yield serving


def test_curl(served):
    [command] = [block for block in blocks(PAGE.read_text(), "bash") if block.startswith("curl")]
    request = command.partition("neve buffer")[0].replace("127.0.0.1:4318", served.http)
    subprocess.run(["bash", "-c", f"{request.rstrip()} --fail --silent"], check=True)
    until(lambda: buffered_rows(served.buffer, "by-hand")["logs"])
    [row] = buffered_rows(served.buffer, "by-hand")["logs"]
    assert (row["severity_text"], row["body"]) == ("INFO", "hello")


def test_sdk_variables(served, monkeypatch):
    [exports] = blocks(SECTIONS["From an SDK"], "bash")
    for variable, value in re.findall(r"export (\w+)=(\S+)", exports):
        monkeypatch.setenv(variable, value.replace("127.0.0.1:4318", served.http))
    tracing = TracerProvider(resource=Resource({"service.name": "sdk"}), shutdown_on_exit=False)
    tracing.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    tracing.get_tracer("tests").start_span("configured by variables").end()
    tracing.shutdown()
    until(lambda: buffered_rows(served.buffer, "sdk")["traces"])
    [span] = buffered_rows(served.buffer, "sdk")["traces"]
    assert span["name"] == "configured by variables"
