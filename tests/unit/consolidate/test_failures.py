"""What fails is told to Sentry, by the table where it is one table's."""

import threading

import pytest

import neve
from neve.buffer.reader import BufferReader
from neve.consolidate.watch import look
from neve.errors import CatalogError, ConflictError, StorageError
from neve.observe import sentry as reporting
from neve.publish.publisher import Publisher
from neve.signals import Signal
from tests.support.consolidation import Bench
from tests.support.lakes import sqlite_settings
from tests.support.observers import Listening
from tests.support.sentry import running_sentry


@pytest.fixture
def bench(tmp_path):
    with neve.open(sqlite_settings(tmp_path)) as lake:
        yield Bench(lake, tmp_path)


@pytest.fixture
def sentry(bench):
    with running_sentry() as found:
        parts = bench.lake.settings.model_dump()
        reporting.start(
            type(bench.lake.settings).model_validate(
                {**parts, "observe": {"sentry": {"dsn": found.dsn}}}
            )
        )
        yield found
        reporting.stop()


@pytest.mark.parametrize(
    ("error", "code", "trouble"),
    [
        (CatalogError("the catalog is down"), "catalog", "otel.logs: the catalog is down"),
        (KeyError("a defect"), "internal", "otel.logs: internal error: KeyError"),
    ],
)
def test_a_job_that_fails(bench, sentry, error, code, trouble):
    def fail(job):
        raise error

    bench.runner = fail
    bench.send(Signal.LOGS, "a")
    observer = Listening()
    look(bench.worker(), threading.Event(), observer)
    reporting.stop()
    assert observer.troubles == [trouble]
    [event] = sentry.events
    assert event["tags"]["code"] == code
    assert event["tags"]["table"] == "otel.logs"


def test_a_run_that_fails_as_a_whole(bench, sentry, monkeypatch):
    def fail(_):
        raise StorageError("the buffer is away")

    monkeypatch.setattr(BufferReader, "close_abandoned", fail)
    observer = Listening()
    report = look(bench.worker(), threading.Event(), observer)
    reporting.stop()
    assert report.error == "the buffer is away"
    assert observer.troubles == ["the buffer is away"]
    [event] = sentry.events
    assert event["tags"] == {"service": "neve", "part": "consolidate", "code": "storage"}


def test_a_table_that_fails(bench, sentry, monkeypatch):
    def refuse(*_):
        raise ConflictError("another was first")

    monkeypatch.setattr(Publisher, "stage", refuse)
    bench.send(Signal.LOGS, "a")
    report = bench.run()
    reporting.stop()
    assert report.trouble == "otel.logs: another was first"
    [event] = sentry.events
    assert event["tags"]["table"] == "otel.logs"
    assert event["tags"]["code"] == "conflict"
