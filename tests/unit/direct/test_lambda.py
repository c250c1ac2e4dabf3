"""The function of AWS Lambda: recorded and hostile events, on the embedded catalog."""

from __future__ import annotations

import gzip
import importlib
import json
import logging
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from neve.config import Settings
from neve.direct.aws_lambda import Function, lambda_handler
from neve.direct.spec import DirectSpec
from neve.direct.writer import Writer
from neve.errors import CatalogError, Code, ConfigError, UnknownOutcomeError, UnsupportedError
from neve.lake.catalog import load_table, open_catalog
from neve.lake.profile import DEFAULT_CATALOG, profile_named
from neve.lake.timeouts import Timeouts
from neve.observe.direct_metrics import open_direct_metrics
from neve.signals import Signal
from tests.support.lakes import sqlite_settings
from tests.support.lambda_function import JSON, KINDS, PROTOBUF, Context, ask, changed, event
from tests.support.otlp_bodies import as_json, protobuf

TOKEN = "a-token-of-the-tests"
BODY = protobuf(Signal.LOGS)


@pytest.fixture(scope="module")
def settings(tmp_path_factory) -> Settings:
    return sqlite_settings(tmp_path_factory.mktemp("lambda"))


@pytest.fixture(scope="module")
def function(settings):
    return Function(lambda: settings)


def with_tokens(settings, *tokens):
    receive = settings.receive.model_validate({"tokens": list(tokens)})
    return settings.model_copy(update={"receive": receive})


def rows(settings, table="logs"):
    profile = profile_named(settings, DEFAULT_CATALOG)
    return load_table(profile, open_catalog(profile), ("otel", table)).scan().to_arrow()


def zstd(body):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(body)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("kind", KINDS)
def test_events_of_each_kind_land_in_the_table(function, settings, kind):
    name = f"from {kind}"
    answer = ask(function, event(kind, protobuf(Signal.LOGS, name)))
    assert (answer.status, answer.headers["content-type"]) == (200, PROTOBUF)
    assert Signal.LOGS.response.FromString(answer.body) == Signal.LOGS.response()
    # Binary, whatever the body holds: the gateway must not take it for text.
    assert function(event(kind), Context())["isBase64Encoded"] is True
    assert rows(settings)["body"].to_pylist().count(f"{name} 0") == 1


@pytest.mark.parametrize("signal", Signal)
@pytest.mark.parametrize("encoding", ["", "gzip", "zstd"])
@pytest.mark.parametrize("is_json", [False, True])
def test_every_encoding_is_taken(function, signal, encoding, is_json):
    pack = {"": bytes, "gzip": gzip.compress, "zstd": zstd}[encoding]
    body = pack(as_json(signal) if is_json else protobuf(signal))
    headers = {"content-type": JSON if is_json else PROTOBUF}
    headers |= {"content-encoding": encoding} if encoding else {}
    answer = ask(function, event(body=body, signal=signal, headers=headers))
    assert (answer.status, answer.headers["content-type"]) == (200, headers["content-type"])
    assert answer.body == (b"{}" if is_json else b"")


def test_what_no_table_can_hold_is_counted(function):
    request = Signal.LOGS.request()
    records = request.resource_logs.add().scope_logs.add().log_records
    records.add(time_unix_nano=2**64 - 1).body.string_value = "after the year 2261"
    records.add().body.string_value = "good"
    answer = ask(function, event(body=request.SerializeToString()))
    partial = Signal.LOGS.response.FromString(answer.body).partial_success
    assert (answer.status, partial.rejected_log_records) == (200, 1)
    assert partial.error_message


@pytest.mark.parametrize(
    ("made", "status", "says"),
    [
        (None, 400, "no object"),
        ([], 400, "no object"),
        ({}, 400, "no method"),
        ({"Records": [{"eventSource": "aws:s3"}]}, 400, "no method"),
        (changed(requestContext=None), 400, "no method"),
        (changed(requestContext={"http": "POST"}), 400, "no method"),
        (changed(rawPath=7), 400, "no path"),
        (changed(body=7), 400, "no text"),
        (changed(body={"a": 1}), 400, "no text"),
        (changed(body="@@@@"), 400, "not in base64"),
        (changed(body="AAA"), 400, "not in base64"),
        (changed(body="ä" * 8), 400, "not in base64"),
        (changed(body="\ud83d", isBase64Encoded=False), 400, "binary media types"),
        (changed(body="\ufffd\ufffd", isBase64Encoded=False), 400, "binary media types"),
        (changed(headers=None), 415, "content type ''"),
        (changed(headers=[1]), 415, "content type ''"),
        (changed(headers={"content-type": 7}), 415, "content type ''"),
        (changed(headers={"content-type": "text/plain; charset=utf-8"}), 415, "text/plain"),
        (event(headers={"content-encoding": "br"}), 415, "content encoding"),
        (event(body=b"\xff", headers={"content-encoding": "gzip"}), 400, "gzip"),
        (event(body=b"", headers={"content-encoding": "gzip"}), 400, "gzip"),
        (event(body=b"\xff\xff"), 400, ""),
        (event(body=b"[" * 100_000, headers={"content-type": JSON}), 400, ""),
        (changed(rawPath="/v1/nothing"), 404, "/v1/nothing"),
        (changed(rawPath="/\ud83d"), 404, "nothing is served"),
        (event(method="GET"), 405, "use POST"),
        (event("rest_api", method="OPTIONS"), 405, "use POST"),
    ],
    ids=lambda value: "" if isinstance(value, (dict, list)) else str(value),
)
def test_hostile_events_get_clear_answers(function, made, status, says):
    answer = ask(function, made)
    assert (answer.status, says in answer.message) == (status, True), answer.message
    assert "retry-after" not in answer.headers


def test_a_base_path_and_names_in_any_case_are_understood(function):
    made = event("rest_api", BODY)
    made["path"] = "/telemetry/v1/logs"
    made["headers"] = {name.upper(): value for name, value in made["headers"].items()}
    assert ask(function, made).status == 200
    made["headers"] = None
    assert ask(function, made).status == 200
    made["multiValueHeaders"] = {"Content-Type": PROTOBUF}
    assert ask(function, made).status == 415


def test_only_those_with_a_token_may_send(settings, tmp_path):
    function = Function(lambda: with_tokens(settings, {"name": "shop", "token": TOKEN}))
    for shown in (
        None,
        "",
        "Bearer",
        f"Basic {TOKEN}",
        "Bearer another-token-of-16",
        "Bearer \xe9",
    ):
        headers = {"authorization": shown} if shown is not None else {}
        answer = ask(function, event(body=b"\xff", headers=headers))
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    named = protobuf(Signal.LOGS, "by the shop")
    for kind in KINDS:
        headers = {"authorization": f"Bearer {TOKEN}"}
        assert ask(function, event(kind, named, headers=headers)).status == 200
    stored = rows(settings)
    senders = {
        sender
        for body, sender in zip(
            stored["body"].to_pylist(), stored["sender"].to_pylist(), strict=True
        )
        if body == "by the shop 0"
    }
    assert senders == {"shop"}


def test_a_request_over_the_limit_is_refused(settings):
    receive = settings.receive.model_validate({"max_request_bytes": 1000})
    small = Function(lambda: settings.model_copy(update={"receive": receive}))
    bomb = gzip.compress(bytes(2_000_000))
    for body, headers in ((bytes(1001), {}), (bomb, {"content-encoding": "gzip"})):
        assert ask(small, event(body=body, headers=headers)).status == 413


class FailingSink:
    """Refuses each write."""

    def __init__(self, error):
        self.error = error
        self.timeouts = []
        self.closed = False

    def begin(self, table, deadline):
        self.timeouts.append(Timeouts(10.0, 60.0).now())
        raise self.error

    def close(self):
        self.closed = True


@pytest.fixture
def failing(settings, monkeypatch):
    """Make a function whose writes fail with the given error; return it, and its sinks."""

    def make(error):
        sinks = []

        def open_writer(*_, **__):
            sinks.append(FailingSink(error))
            return Writer(sinks[-1], DirectSpec(), open_direct_metrics(settings))

        monkeypatch.setattr(Writer, "open", open_writer)
        return Function(lambda: settings), sinks

    return make


@pytest.mark.parametrize(
    ("error", "opens_anew"),
    [
        (CatalogError("10.0.0.1 is away", code=Code.UNREACHABLE, retryable=True), True),
        (CatalogError("403 for arn:aws:x", code=Code.REFUSED), True),
        (UnknownOutcomeError("lost", retryable=True), False),
        (UnsupportedError("a foreign table is in the way"), False),
        (RuntimeError("a defect"), False),
        (MemoryError(), False),
    ],
    ids=str,
)
def test_what_may_pass_is_answered_with_503(failing, error, opens_anew):
    function, sinks = failing(error)
    for _ in range(2):
        answer = ask(function, event(body=BODY))
        assert (answer.status, answer.headers["retry-after"]) == (503, "2")
        # Strangers learn no addresses, tables or reasons.
        assert not str(error) or str(error) not in answer.message
    assert len(sinks) == (2 if opens_anew else 1)
    assert sinks[0].closed is opens_anew


def test_a_wrong_configuration_is_logged_and_answered_with_503(settings, caplog):
    attempts = []

    def load_settings():
        attempts.append(1)
        if len(attempts) == 1:
            raise ConfigError("neve.yaml line 3: unknown key catalog.typ")
        return settings

    function = Function(load_settings)
    with caplog.at_level(logging.ERROR, "neve"):
        answer = ask(function, event(body=BODY))
    assert (answer.status, answer.message) == (503, "the function cannot start: config")
    assert "unknown key catalog.typ" in caplog.text
    assert ask(function, event(body=BODY)).status == 200


@pytest.mark.parametrize("seconds", [0.0, 1.4, -5.0])
def test_too_little_time_is_refused_before_anything_is_written(settings, seconds):
    before = len(rows(settings))
    answer = ask(Function(lambda: settings), event(body=BODY), Context(seconds))
    assert answer.status == 503
    assert "too little time" in answer.message
    assert len(rows(settings)) == before


def test_time_that_runs_out_on_the_way_is_not_acknowledged(function, settings):
    before = len(rows(settings))
    for steps in range(1, 4):
        answer = ask(function, event(body=BODY), Context(*[10.0] * steps, 1.0))
        if answer.status == 200:
            break
        assert answer.status == 503
        assert len(rows(settings)) == before
    assert steps > 1


def test_requests_to_the_catalog_end_before_the_function_does(failing):
    function, sinks = failing(CatalogError("away", code=Code.UNREACHABLE))
    assert ask(function, event(body=BODY), Context(8.0)).status == 503
    assert sinks[0].timeouts == [Timeouts(7.5, 7.5)]
    assert Timeouts(10.0, 60.0).now() == Timeouts(10.0, 60.0)


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_an_hour_off_changes_nothing(function, settings, monkeypatch, hours):
    ask(function, event(body=BODY))
    before = len(rows(settings))
    now, now_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: now() + hours * 3600)
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + hours * 3600 * 10**9)
    fresh = Function(lambda: settings)
    assert ask(fresh, event(body=BODY)).status == 200
    monkeypatch.undo()
    assert ask(function, event(body=BODY)).status == 200
    assert len(rows(settings)) == before + 2


def test_each_commit_is_a_line_of_metrics(settings, capsys):
    function = Function(lambda: settings)
    assert ask(function, event(body=protobuf(Signal.LOGS, records=3))).status == 200
    [line] = capsys.readouterr().out.splitlines()
    document = json.loads(line)
    [directive] = document["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "Neve"
    names = {metric["Name"] for metric in directive["Metrics"]}
    assert names.union(*directive["Dimensions"]) <= document.keys()
    assert (document["Table"], document["Commits"], document["RowsWritten"]) == ("otel.logs", 1, 3)
    assert abs(document["_aws"]["Timestamp"] / 1000 - time.time()) < 60


def test_lambda_finds_the_handler_by_its_name():
    # As the runtime does with the setting neve.direct.lambda_handler.
    assert importlib.import_module("neve.direct").lambda_handler is lambda_handler


def test_several_threads_of_one_container_store_each_request_once(tmp_path):
    """Lambda sends a container one event at a time, but runtimes and tests may not."""
    settings = sqlite_settings(tmp_path)
    function = Function(lambda: settings)
    signals = [signal for signal in Signal for _ in range(6)]
    start = threading.Barrier(len(signals))

    def send(number):
        body = protobuf(signals[number], f"request {number}", records=2)
        start.wait(60)
        return ask(function, event(body=body, signal=signals[number]), Context(60.0)).status

    with ThreadPoolExecutor(len(signals)) as pool:
        assert set(pool.map(send, range(len(signals)))) == {200}
    for table in ("logs", "traces", "metrics_gauge"):
        found = rows(settings, table).drop(["received_at"]).to_pylist()
        stored = Counter(str(row) for row in found)
        assert (len(stored), set(stored.values())) == (12, {1})
