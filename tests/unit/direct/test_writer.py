"""Rows and requests into the telemetry tables without Spark, on the embedded catalog."""

import pytest

from neve.direct import Writer
from neve.signals import Signal
from tests.support.lakes import sqlite_settings
from tests.support.otlp_bodies import protobuf


@pytest.fixture
def commits():
    return []


@pytest.fixture
def writer(tmp_path, commits):
    with Writer.open(sqlite_settings(tmp_path), observer=commits.append) as opened:
        yield opened


def test_the_observer_is_told_what_each_commit_cost(writer, commits):
    result = writer.write_request(Signal.LOGS, protobuf(Signal.LOGS, records=3))
    (table,) = result.tables
    (commit,) = commits
    assert (commit.table, commit.committed, commit.attempts) == ("otel.logs", True, 1)
    assert (commit.files, commit.rows, commit.bytes) == (1, 3, table.bytes)
    assert (commit.conflicts, commit.unknown_outcomes) == (0, 0)
    assert commit.seconds > 0
