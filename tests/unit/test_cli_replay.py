"""`neve consolidate --replay`, as it is typed."""

import json
from collections import Counter

import pytest

import neve
from neve.cli import replaying
from neve.cli.app import run
from neve.consolidate import consolidator
from neve.signals import Signal
from tests.support.consolidation import Bench, run_inline
from tests.support.lakes import sqlite_settings


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """A lake that the command line sees too; tasks run here and not on Spark."""
    settings = sqlite_settings(tmp_path)
    monkeypatch.setenv("NEVE_CATALOG__URI", settings.catalog.uri)
    monkeypatch.setenv("NEVE_CATALOG__WAREHOUSE", settings.catalog.warehouse)
    monkeypatch.setattr(consolidator, "SparkRunner", lambda _: run_inline)
    with neve.open(settings) as lake:
        bench = Bench(lake, tmp_path)
        monkeypatch.setenv("NEVE_BUFFER__LOCATION", bench.buffer.location)
        yield bench


def test_it_says_what_it_did(bench, monkeypatch, capsys):
    monkeypatch.setenv("NEVE_BUFFER__RETAIN_SECONDS", "1h")
    bench.send(Signal.LOGS, "a")
    assert run(["--json", "consolidate", "--once"]) == 0
    bench.lake.catalog().drop_table("otel.logs")
    capsys.readouterr()
    assert run(["--json", "consolidate", "--replay", "otel.logs", "--from", "2020-01-31"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert bench.names("logs") == Counter(["a 0", "a 1"])
    assert (done["segments"], done["requests"], done["rows"]) == (1, 1, 2)
    # The closing segment has no request: --from leaves it out.
    assert (done["segments_before_from"], done["no_longer_retained"]) == (1, {})
    assert run(["consolidate", "--replay", "otel.logs"]) == 0
    assert run(["consolidate", "--replay", "otel.logs"]) == 0
    assert "The table has all that is retained." in capsys.readouterr().out


def test_without_a_retention_it_says_so(bench, capsys):
    bench.send(Signal.LOGS, "a")
    assert run(["--json", "consolidate", "--once"]) == 0
    capsys.readouterr()
    assert run(["consolidate", "--replay", "otel.logs"]) == 0
    assert "Set buffer.retain_seconds to keep segments." in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ("--from", "2026-01-31"),
        ("--replay", "otel.logs", "--from", "yesterday"),
        ("--replay", "otel.events"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(bench, arguments):
    assert run(["consolidate", *arguments]) == 2


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-02", 86_400),
        ("1970-01-01T00:00:01.5Z", 1.5),
        ("1970-01-01T01:00:00+01:00", 0),
    ],
)
def test_a_time_without_an_offset_is_utc(text, seconds):
    assert replaying.parse_time(text).timestamp() == seconds
