"""A direct write ends with its deadline, whatever is silent, and whatever the time-outs are."""

from __future__ import annotations

import sqlite3
import time
import uuid
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from neve.direct import Writer
from tests.support.direct_lake import logs
from tests.support.lakes import postgres_settings, rest_settings, sqlite_settings
from tests.support.silent import running_silent_server

DEADLINE_SECONDS = 4.0
# One step beyond the deadline, on a machine that has other things to do. The time-outs of
# catalogs are a minute, that of a store is 20 s, that of SQLite's locks 30 s.
MOST_SECONDS = 14.0


def with_deadline(settings):
    direct = settings.direct.model_copy(update={"deadline_seconds": DEADLINE_SECONDS})
    telemetry = settings.telemetry.model_copy(update={"namespace": f"d_{uuid.uuid4().hex[:12]}"})
    return settings.model_copy(update={"direct": direct, "telemetry": telemetry})


def assert_ends_in_time(writer):
    started = time.monotonic()
    result = writer.write_and_commit("logs", None, logs("b"))
    took = time.monotonic() - started
    assert not result.committed
    assert result.error is not None
    assert took < MOST_SECONDS, took


@pytest.mark.parametrize("silent", ["rest", "postgres", "store"])
def test_a_server_falls_silent(silent, rest_catalog, postgres, s3):
    store_port = urlsplit(s3.endpoint).port
    upstream = {"rest": rest_catalog.port, "postgres": postgres.port, "store": store_port}[silent]
    with running_silent_server(upstream) as server:
        settings = {
            "rest": lambda: rest_settings(server.uri, s3),
            "postgres": lambda: postgres_settings(replace(postgres, port=server.port), s3),
            "store": lambda: postgres_settings(postgres, replace(s3, endpoint=server.uri)),
        }[silent]()
        with Writer.open(with_deadline(settings)) as writer:
            assert writer.write_and_commit("logs", None, logs("a")).committed
            server.silent.set()
            assert_ends_in_time(writer)
            server.silent.clear()


def test_somebody_keeps_sqlite_locked(tmp_path):
    with Writer.open(with_deadline(sqlite_settings(tmp_path))) as writer:
        assert writer.write_and_commit("logs", None, logs("a")).committed
        connection = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)
        connection.execute("BEGIN EXCLUSIVE")
        assert_ends_in_time(writer)
        connection.close()
        assert writer.write_and_commit("logs", None, logs("c")).committed
