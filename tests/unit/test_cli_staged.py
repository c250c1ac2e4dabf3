"""`neve staged` with many held batches: all of them, the old ones, and those that fail."""

from __future__ import annotations

import io
import json
from collections import Counter

import pytest

import neve
from neve.cli.app import run
from neve.errors import CatalogError, HeldLimitError, NotFoundError
from neve.publish.audit_result import AuditResult
from neve.publish.batch import HELD_PREFIX, STAGED_PREFIX
from neve.publish.publisher import Publisher
from tests.support.held_batches import HOUR, TABLES, HeldBatches
from tests.support.lakes import sqlite_settings
from tests.support.terminal import run_in_terminal


@pytest.fixture
def batches(tmp_path, monkeypatch):
    settings = sqlite_settings(tmp_path)
    monkeypatch.setenv("NEVE_CATALOG__URI", settings.catalog.uri)
    monkeypatch.setenv("NEVE_CATALOG__WAREHOUSE", settings.catalog.warehouse)
    with neve.open(settings) as lake:
        batches = HeldBatches(lake, monkeypatch)
        batches.hold("otel.logs", "old", 1, hours=8)
        batches.hold("otel.logs", "young", 2)
        batches.hold("otel.traces", "other", 3, hours=5)
        yield batches


def answer(capsys, *arguments, status=0):
    yes = ["--yes"] if arguments[0] == "discard" else []
    assert run(["--json", "staged", *arguments, *yes]) == status
    return json.loads(capsys.readouterr().out)


def outcomes(results):
    return {row["batch_id"]: row["outcome"] for row in results}


def test_the_list_says_how_old_a_batch_is_and_how_many_rows_it_has(batches, capsys):
    listed = {row["batch_id"]: row for row in answer(capsys, "list")}
    assert {name: row["rows"] for name, row in listed.items()} == {"old": 1, "young": 1, "other": 1}
    assert listed["old"]["age_seconds"] == pytest.approx(8 * HOUR, abs=120)
    assert listed["young"]["age_seconds"] < 120


def test_the_list_names_the_audits_that_hold_a_batch_and_why(batches, capsys):
    audits = (
        AuditResult("has_service", "not_null", False, 20, 25, "block"),
        AuditResult("fresh", "freshness", True, 0, 25, "block"),
        AuditResult("small", "row_count", False, 25, 25, "warn"),
    )
    batches.hold("otel.logs", "bad", 4, audits=audits)
    listed = {row["batch_id"]: row["held_by"] for row in answer(capsys, "list")}
    why = {"audit": "has_service", "check": "not_null", "failing": 20, "total": 25}
    assert listed == {"old": [], "young": [], "other": [], "bad": [why]}
    properties = batches.lake.table("otel.logs").properties
    # What an earlier Neve held has no such property.
    with batches.lake.catalog().load_table("otel.logs").transaction() as change:
        change.remove_properties("neve.held-by.old")
    assert {row["batch_id"]: row["held_by"] for row in answer(capsys, "list")}["old"] is None
    for columns in (80, 120):
        screen = run_in_terminal(["staged", "list"], columns=columns)
        assert screen.status == 0
        assert "has_service: 20 of 25 rows" in screen.text
        (line,) = [line for line in screen.lines if " old " in line]
        assert line.split()[-1] == "unknown"
        assert max(map(len, screen.lines)) <= columns
    # Whoever decides on a batch takes what was said of it away.
    assert "neve.held-by.bad" in properties
    answer(capsys, "discard", "otel.logs", "bad")
    answer(capsys, "publish", "otel.logs", "young")
    properties = batches.lake.table("otel.logs").properties
    assert [name for name in properties if name.startswith("neve.held-by.")] == []


def test_discarding_asks_first(batches, capsys):
    arguments = ["staged", "discard", "otel.logs", "old"]
    one = [("Discard 1 rows of otel.logs? [y/N]", "n\r")]
    assert run_in_terminal(arguments, columns=80, send=one).status == 1
    assert len(batches.held("otel.logs")) == 2
    many = [("Discard 3 batches, 3 rows of otel.logs, otel.traces? [y/N]", "y\r")]
    assert run_in_terminal(["staged", "discard", "--all"], send=many).status == 0
    assert batches.held("otel.logs") == []


class Typed(io.StringIO):
    """What somebody types on a terminal."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("typed", "status", "left"), [("\n", 1, 2), ("n\n", 1, 2), ("Yes\n", 0, 1)]
)
def test_only_a_yes_discards(batches, monkeypatch, typed, status, left):
    monkeypatch.setattr("sys.stdin", Typed(typed))
    assert run(["staged", "discard", "otel.logs", "old"]) == status
    assert len(batches.held("otel.logs")) == left


@pytest.mark.parametrize("arguments", [["otel.logs", "old"], ["--all"]])
def test_nobody_to_ask_is_no_yes(batches, capsys, arguments):
    assert run(["staged", "discard", *arguments]) == 2
    assert "standard input is not a terminal (say --yes" in capsys.readouterr().err
    assert len(batches.held("otel.logs")) == 2


@pytest.mark.parametrize(
    ("arguments", "decided", "left"),
    [
        (["--all"], {"old", "young", "other"}, 0),
        (["otel.logs", "--all"], {"old", "young"}, 1),
        (["--older-than", "4h"], {"old", "other"}, 1),
        (["otel.logs", "--all", "--older-than", "6h"], {"old"}, 2),
        (["--older-than", "7d"], set(), 3),
    ],
)
@pytest.mark.parametrize("verb", ["publish", "discard"])
def test_several_are_decided_on_at_once(batches, capsys, verb, arguments, decided, left):
    results = answer(capsys, verb, *arguments)
    assert outcomes(results) == dict.fromkeys(decided, f"{verb}ed")
    assert sum(len(batches.held(table)) for table in TABLES) == left
    numbers = {"old": 1, "young": 2, "other": 3}
    shown = batches.ids("otel.logs") + batches.ids("otel.traces")
    assert shown == Counter(numbers[name] for name in decided if verb == "publish")
    # Done again, it finds nothing that was decided on already.
    assert answer(capsys, verb, *arguments) == []


@pytest.mark.parametrize("verb", ["publish", "discard"])
@pytest.mark.parametrize("error", [CatalogError("it is down"), NotFoundError("it is down")])
def test_one_that_fails_stops_no_other(batches, capsys, monkeypatch, verb, error):
    """That something of its table is not there does not say that somebody decided on it."""
    method = {"publish": "release", "discard": "discard"}[verb]
    real = getattr(Publisher, method)

    def refuse_old(self, held):
        if held.ref.endswith("old"):
            raise error
        return real(self, held)

    monkeypatch.setattr(Publisher, method, refuse_old)
    results = answer(capsys, verb, "--all", status=3)
    assert {name: outcome == "failed" for name, outcome in outcomes(results).items()} == {
        "old": True,
        "young": False,
        "other": False,
    }
    (failed,) = [row for row in results if row["outcome"] == "failed"]
    assert (failed["table"], failed["error"]) == ("otel.logs", "it is down")
    assert batches.held("otel.logs") == [f"{HELD_PREFIX}old"]


def test_a_table_that_cannot_be_read_stops_no_other(batches, capsys, tmp_path):
    location = batches.lake.catalog().load_table("otel.logs").metadata_location
    (tmp_path / location.partition(str(tmp_path))[2].lstrip("/")).unlink()
    results = answer(capsys, "discard", "--all", status=3)
    assert [(row["table"], row["outcome"]) for row in results] == [
        ("otel.logs", "failed"),
        ("otel.traces", "discarded"),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a table and a batch"),
        (["otel.logs"], "name a table and a batch"),
        (["otel.logs", "old", "--all"], "not both"),
        (["otel.logs", "old", "--older-than", "1h"], "not both"),
        (["--older-than", "soon"], "--older-than soon"),
        (["--older-than=-5"], "in the future"),
        (["--older-than", "nan"], "--older-than nan"),
    ],
)
def test_what_makes_no_sense_is_refused(batches, capsys, arguments, message):
    assert run(["staged", "discard", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert len(batches.held("otel.logs")) == 2


def test_a_full_table_keeps_the_next_batch_staged_until_some_were_decided_on(batches, capsys):
    with pytest.raises(HeldLimitError, match=r"otel\.logs: .* 2 are held already") as failure:
        batches.hold("otel.logs", "next", 4, max_held=2)
    assert "neve staged publish|discard otel.logs --all" in failure.value.hint
    publisher = batches.publisher("otel.logs", "next")
    (staged,) = publisher.table.staged(STAGED_PREFIX)
    # No mark has moved: the rows are in the buffer still, and another table is not concerned.
    assert "next" not in publisher.marks()
    batches.hold("otel.traces", "next", 5, max_held=2)
    answer(capsys, "discard", "otel.logs", "old")
    publisher.hold(publisher.waiting(), 2)
    assert publisher.marks()["next"] == 1
    assert staged.ref not in publisher.table.document.refs
    assert batches.held("otel.logs") == [f"{HELD_PREFIX}young", f"{HELD_PREFIX}next"]
