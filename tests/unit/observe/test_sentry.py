"""Failures as Sentry gets them, through the SDK's own transport."""

import subprocess
import sys
import time

import pytest
from pyspark.errors import PySparkValueError

from neve.config import Settings
from neve.errors import CatalogError, ConfigError
from neve.observe import sentry as reporting
from tests.support.sentry import running_sentry

CELL = "alice@example.com"
SECRET = "hunter2hunter2"  # a password in the catalog's address


@pytest.fixture
def sentry(monkeypatch):
    monkeypatch.setenv("APP_VERSION", "7.1")
    with running_sentry() as found:
        reporting.start(settings(found.dsn))
        yield found
        reporting.stop()


def settings(dsn):
    return Settings(
        project="shop",
        environment="test",
        catalog={
            "type": "postgres",
            "uri": f"postgresql://me:{SECRET}@h/d",
            "warehouse": "/w",
            "properties": {"jdbc.password": SECRET},
        },
        observe={"sentry": {"dsn": dsn}},
    )


def fail_with_values(row):
    """Fail as a merge would in whose frames, messages and notes a row lies."""
    told = f"[CAST_INVALID_INPUT] The value '{row['email']}' cannot be cast, user {SECRET}"
    try:
        error = PySparkValueError(told)
        if sys.version_info >= (3, 11):
            error.add_note(told)
        raise error
    except PySparkValueError as error:
        raise CatalogError(f"cannot merge {row}: {error}", hint=str(row)) from error


def test_a_failure_is_sent_with_its_tags_and_place_and_no_value(sentry):
    try:
        fail_with_values({"email": CELL})
    except CatalogError as error:
        reporting.capture(error, "merge", "shop.orders")
    reporting.stop()
    [event] = sentry.events
    tags = {"service": "shop", "part": "merge", "table": "shop.orders", "code": "catalog"}
    assert event["tags"] == tags
    assert (event["release"], event["environment"], event["level"]) == ("7.1", "test", "error")
    cause, error = event["exception"]["values"]
    assert (error["type"], error["module"]) == ("CatalogError", "neve.errors")
    assert "value" not in error
    assert (cause["type"], cause["value"]) == ("PySparkValueError", "CAST_INVALID_INPUT")
    frame = error["stacktrace"]["frames"][-1]
    assert frame["function"] == "fail_with_values"
    assert frame["filename"].endswith("test_sentry.py")
    assert frame["lineno"] > 0
    assert not {"vars", "context_line", "pre_context"} & set(frame)
    for forbidden in (CELL, "alice", SECRET, "argv", "breadcrumbs", "modules", "cannot"):
        assert forbidden not in sentry.text, forbidden


def test_secrets_are_hidden_also_where_none_should_be(sentry):
    reporting.capture(KeyError(CELL), "merge", f"shop.{SECRET}")
    reporting.stop()
    [event] = sentry.events
    assert event["tags"]["table"] == "shop.********"
    assert event["tags"]["code"] == "internal"
    assert SECRET not in sentry.text
    assert CELL not in sentry.text


def test_the_same_failure_is_sent_again_only_after_a_while(sentry, monkeypatch):
    for table in ("a.b", "a.b", "a.c", "a.b"):
        reporting.capture(CatalogError("down"), "merge", table)
    reporting.capture(KeyError("other"), "merge", "a.b")
    later = time.monotonic() + reporting.REPEAT_SECONDS
    monkeypatch.setattr(reporting.time, "monotonic", lambda: later)
    reporting.capture(CatalogError("down"), "merge", "a.b")
    monkeypatch.undo()
    reporting.stop()
    sent = [(event["tags"]["table"], event["tags"]["code"]) for event in sentry.events]
    assert sent == [
        ("a.b", "catalog"),
        ("a.c", "catalog"),
        ("a.b", "internal"),
        ("a.b", "catalog"),
    ]


def test_an_application_with_a_sentry_of_its_own_keeps_it(sentry):
    import sentry_sdk

    assert not sentry_sdk.is_initialized()


@pytest.mark.parametrize("dsn", ["nonsense", "https://example.com/no-key"])
def test_a_dsn_that_is_none_is_an_error_that_does_not_repeat_it(dsn):
    with pytest.raises(ConfigError, match=r"observe\.sentry\.dsn is no DSN") as caught:
        reporting.start(settings(dsn))
    assert dsn not in str(caught.value)


def test_nothing_is_loaded_unless_it_is_configured():
    code = (
        "import sys; from neve.config import Settings; from neve.observe import sentry\n"
        "for dsn in (None, ''): sentry.start(Settings(observe={'sentry': {'dsn': dsn}}))\n"
        "sentry.capture(KeyError('x'), 'merge')\n"
        "sentry.stop()\n"
        "print('sentry_sdk' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "False\n"


def test_reporting_never_fails_itself(sentry, monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("broken")

    monkeypatch.setattr(reporting.Reporter, "capture", broken)
    reporting.capture(KeyError("x"), "merge")
    assert "Sentry was not told" in caplog.text
