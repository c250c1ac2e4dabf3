"""Services on a terminal: permanent lines, no spinner, and Ctrl-C."""

import http.client
import json
import re
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from neve.signals import Signal
from tests.support.otlp_bodies import protobuf
from tests.support.servers import SHORT_LIVED_JAVA
from tests.support.terminal import CTRL_C, Terminal

FREE = {"NEVE_RECEIVE__HTTP": "0", "NEVE_RECEIVE__GRPC": "0"}
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (WARNING )?\S.*")


def send(terminal, signal):
    address = re.search(r"OTLP/HTTP on (\S+),", terminal.text)[1]
    with closing(http.client.HTTPConnection(address, timeout=10)) as connection:
        headers = {"content-type": "application/x-protobuf"}
        connection.request("POST", signal.http_path, protobuf(signal, "a", 3), headers)
        assert connection.getresponse().status == 200


def messages(screen):
    """Return the lines without their times, after a look at what every line must be."""
    # The terminal ends a line with \r\n; a \r or a sequence elsewhere would draw over a line.
    assert "\x1b" not in screen.raw
    assert "\r" not in screen.raw.replace("\r\n", "")
    lines = [line for line in screen.lines if line not in ("", "^C")]
    assert not [line for line in lines if not LINE.fullmatch(line)]
    return [line.partition("Z ")[2] for line in lines]


@pytest.mark.parametrize("columns", [80, 120])
def test_a_receiver_says_where_it_listens_and_how_it_stops(tmp_path, columns):
    with Terminal(["serve"], columns, cwd=tmp_path, env=FREE) as terminal:
        terminal.wait_for("ready; Ctrl-C stops")
        send(terminal, Signal.LOGS)
        terminal.type(CTRL_C)
        screen = terminal.finish()
    assert screen.status == 0
    address, *rest = messages(screen)
    assert re.fullmatch(
        r"OTLP/HTTP on 127.0.0.1:\d+, OTLP/gRPC on 127.0.0.1:\d+, buffer .*", address
    )
    assert rest == ["ready; Ctrl-C stops", "stopping; Ctrl-C again ends at once", "stopped"]


def test_json_is_an_object_on_each_line_to_the_last(tmp_path):
    with Terminal(["serve", "--json"], cwd=tmp_path, env=FREE) as terminal:
        terminal.wait_for('"ready"')
        terminal.type(CTRL_C)
        screen = terminal.finish()
    lines = [json.loads(line) for line in screen.lines if line.startswith("{")]
    assert [line["event"] for line in lines] == ["listening", "ready", "stopping", "stopped"]
    missing = {"NEVE_RECEIVE__TLS": '{"cert": "no.pem", "key": "no.pem"}'}
    log_format = {"NEVE_OBSERVE__LOG_FORMAT": "json"}
    with Terminal(["serve"], cwd=tmp_path, env={**FREE, **missing, **log_format}) as terminal:
        screen = terminal.finish()
    (line,) = [json.loads(line) for line in screen.lines if line.startswith("{")]
    assert (screen.status, line["level"], line["code"]) == (2, "error", "config")
    assert line["hint"] in line["message"]


@pytest.mark.soak  # the tutorial's test compares the same lines; this one is about their width
@pytest.mark.parametrize("columns", [80, 120])
def test_a_run_says_each_batch_and_what_to_do_with_a_held_one(tmp_path, columns):
    audit = {"name": "has_service", "check": "not_null", "column": "service_name"}
    configuration = {
        "buffer": {"seal_seconds": 0.2},
        "consolidate": {"trigger_seconds": 0.2},
        "audits": {"otel.logs": [audit]},
    }
    Path(tmp_path, "neve.yaml").write_text(yaml.safe_dump(configuration))
    with Terminal(["run"], columns, cwd=tmp_path, env={**FREE, **SHORT_LIVED_JAVA}) as terminal:
        terminal.wait_for("Spark is ready")
        send(terminal, Signal.TRACES)
        terminal.wait_for("otel.traces: 3 rows published in ")
        send(terminal, Signal.LOGS)
        terminal.wait_for("look at them with: neve staged show otel.logs ")
        terminal.type(CTRL_C)
        screen = terminal.finish()
    assert screen.status == 0
    said = messages(screen)
    assert [line for line in said if re.fullmatch(r"otel.traces: .* s, lag \d+\.\d s", line)]
    audited = "WARNING otel.logs: audit has_service failed for 3 of 3 rows"
    # Nothing for looks without work, and each line once.
    assert said[1] == "ready; Ctrl-C stops"
    assert said[2] == "starting Spark"
    assert said[3].startswith("Spark is ready after ")
    assert said[5] == audited
    assert said[7:] == ["stopping; Ctrl-C again ends at once", "stopped"]
