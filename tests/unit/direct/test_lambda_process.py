"""The handler in a process that has no more than the package for AWS Lambda."""

import json

from neve.signals import Signal
from tests.support.lakes import sqlite_settings
from tests.support.lambda_function import Answer, event
from tests.support.lambda_process import modules_beside_the_package, run_handler, variables
from tests.support.otlp_bodies import protobuf

TOKEN = "a-secret-token-of-the-tests"


def test_requests_are_stored_with_what_the_package_has(tmp_path):
    events = [
        event(body=protobuf(signal), signal=signal, headers={"authorization": f"Bearer {TOKEN}"})
        for signal in Signal
    ]
    environment = variables(
        sqlite_settings(tmp_path),
        NEVE_RECEIVE__TOKENS=json.dumps([TOKEN]),
        AWS_LAMBDA_LOG_LEVEL="DEBUG",
    )
    done = run_handler(events, environment, tmp_path, missing=modules_beside_the_package())
    assert [Answer(answer).status for answer in done.answers] == [200, 200, 200]
    assert [line["Table"] for line in done.metrics] == [
        *("otel.logs", "otel.traces", "otel.metrics_gauge"),
    ]
    # Structured, each step at DEBUG, and without secrets.
    assert {"info", "debug"} <= {line["level"] for line in done.log}
    assert TOKEN not in str(done.log)
    assert {"pyspark", "pandas", "duckdb", "psycopg2"} <= modules_beside_the_package()


def test_a_configuration_that_cannot_be_used_is_logged_without_its_secrets(tmp_path):
    environment = {
        "NEVE_CATALOG__TYPE": "rest",
        "NEVE_CATALOG__URI": "ftp://user:pass-word@catalog",
        "NEVE_CATALOG__TOKEN": TOKEN,
    }
    done = run_handler([event(body=protobuf(Signal.LOGS))], environment, tmp_path)
    [answer] = done.answers
    assert (Answer(answer).status, Answer(answer).headers["retry-after"]) == (503, "2")
    [line] = done.log
    assert (line["level"], "uri must begin with" in line["message"]) == ("error", True)
    assert TOKEN not in str(done.log)
    assert "pass-word" not in str(done.log)
